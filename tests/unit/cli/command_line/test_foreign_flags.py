"""Flags of fairseq: what is understood becomes ours or changes nothing and says so, what is not is refused with advice."""

from __future__ import annotations

import re

import pytest

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package registers its components
from nmt.config.commands import GenerateConfig, ScoreConfig
from nmt.config.composing.presets import preset_names
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig
from nmt.errors import UsageError
from nmt_cli.command_line.argv import CommandLine, rewrite
from nmt_cli.command_line.flags import ADVICE, FOREIGN, grammar_of


def read(*argv: str, command: type = TrainConfig) -> CommandLine:
    return rewrite(argv, grammar_of(command))


TAKEN: list[tuple[list[str], list[str], str]] = [
    (["--eval-bleu"], ["validation.metrics=['bleu']"], "--eval-bleu is read as --valid-metrics=bleu"),
    (
        ["--eval-bleu-args", '{"beam": 5, "max_len_a": 1.2, "max_len_b": 10}'],
        ["search.beam_size=5", "search.max_len_a=1.2", "search.max_len_b=10"],
        '--eval-bleu-args {"beam": 5, "max_len_a": 1.2, "max_len_b": 10} is read as search.beam_size=5 '
        "search.max_len_a=1.2 search.max_len_b=10",
    ),
    (
        ["--memory-efficient-fp16"],
        ["device.precision=fp16"],
        "--memory-efficient-fp16 is read as --precision fp16; parameters stay in float32 during training",
    ),
    (["--log-format", "simple"], ["report.progress=lines"], "--log-format simple is read as --progress lines"),
]


@pytest.mark.parametrize(("argv", "overrides", "note"), TAKEN, ids=[case[0][0] for case in TAKEN])
def test_a_flag_that_has_a_counterpart_becomes_it_and_says_so(argv: list[str], overrides: list[str], note: str) -> None:
    line = read(*argv)
    assert ([*line.overrides], line.notes) == (overrides, (note,))


IDLE: list[list[str]] = [
    ["--task", "translation"],
    ["--eval-bleu-args", "{}"],
    ["--eval-bleu-detok", "moses"],
    ["--eval-bleu-detok-args", "{}"],
    ["--eval-bleu-remove-bpe"],
    ["--eval-bleu-remove-bpe", "@@ "],
    ["--eval-bleu-remove-bpe=sentencepiece"],
    ["--eval-bleu-print-samples"],
    ["--maximize-best-checkpoint-metric"],
    ["--skip-invalid-size-inputs-valid-test"],
    ["--num-workers", "4"],
    ["--ddp-backend", "legacy_ddp"],
]


@pytest.mark.parametrize("argv", IDLE, ids=" ".join)
def test_a_flag_that_changes_nothing_says_so(argv: list[str]) -> None:
    line = read(*argv)
    assert line.overrides == ()
    (note,) = line.notes
    assert note.startswith(f"{' '.join(argv).replace('=', ' ')} has no effect: ")


def test_lenpen_has_fairseqs_meaning_where_it_is_given_to_fairseqs_flag() -> None:
    line = read("--eval-bleu-args", '{"lenpen": 0.6}')
    assert line.overrides == ("search.length_penalty=power", "search.lenpen=0.6")


def test_a_corpus_folder_after_a_flag_without_value_stays_one() -> None:
    for flag in ("--eval-bleu", "--eval-bleu-remove-bpe", "--eval-bleu-print-samples"):
        assert "data=['data-bin/x']" in read(flag, "data-bin/x").overrides


def test_a_flag_of_ours_that_follows_wins() -> None:
    line = read("--eval-bleu-args", '{"beam": 4}', "--beam", "6")
    assert line.overrides == ("search.beam_size=4", "search.beam_size=6")


REFUSED: list[tuple[list[str], str]] = [
    (["--task", "translation_lev"], "--task translation_lev: translation is the only task; omit it"),
    (["--eval-bleu=yes"], "--eval-bleu takes no value"),
    *(
        (
            ["--eval-bleu-remove-bpe", value],
            f"--eval-bleu-remove-bpe {value}: the corpus records how tokens are joined; {it}",
        )
        for it in ["omit it (nmt-preprocess --pieces sets it)"]
        for value in ["none", "letter", "_EOW"]
    ),
    (
        ["--eval-bleu-remove-bpe=foo"],
        "--eval-bleu-remove-bpe foo: the corpus records how tokens are joined; omit it "
        "(nmt-preprocess --pieces sets it)",
    ),
    (["--eval-bleu-detok"], "--eval-bleu-detok needs a value"),
    (
        ["--eval-bleu-args", "beam=5"],
        '--eval-bleu-args beam=5: the value must be JSON, such as \'{"beam": 5, "lenpen": 1}\'',
    ),
    (["--eval-bleu-args", "[5]"], '--eval-bleu-args [5]: the value must be JSON, such as \'{"beam": 5, "lenpen": 1}\''),
    (
        ["--eval-bleu-args", '{"max_len": 5}'],
        "--eval-bleu-args: 'max_len' is not supported (did you mean 'max_len_b'?); give beam, lenpen, max_len_a, "
        "max_len_b, min_len, no_repeat_ngram_size here, and other options with --search",
    ),
    (["--eval-bleu-args", '{"beam": "5"}'], '--eval-bleu-args: beam must be a number, not "5"'),
    (["--eval-bleu-args", '{"beam": true}'], "--eval-bleu-args: beam must be a number, not true"),
    (
        ["--log-format", "json"],
        "--log-format json: use --progress lines or --progress bar; the run folder holds log.jsonl",
    ),
    (
        ["--ddp-backend", "fully_sharded"],
        "--ddp-backend fully_sharded: torchrun starts the processes; omit it, or use --distributed-strategy fsdp "
        "for fully_sharded",
    ),
    (
        ["--eval-tokenized-bleu"],
        "--eval-tokenized-bleu is not a flag here: use --valid-tokenize none if the corpus was made from tokenized "
        "text; for other text omit it: sacreBLEU's 13a is the default",
    ),
    (
        ["--scoring", "bleu"],
        "--scoring is not a flag here: use nmt-score --metrics bleu,chrf,ter, or --valid-metrics while training",
    ),
]


@pytest.mark.parametrize(("argv", "message"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_what_would_lose_its_meaning_is_refused_with_advice(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(*argv)
    assert str(caught.value) == message


@pytest.mark.parametrize("command", [GenerateConfig, ScoreConfig])
def test_a_command_that_validates_nothing_refuses_flags_of_validation(command: type) -> None:
    with pytest.raises(UsageError, match="--eval-bleu is not a flag here: this command does not use it; omit it"):
        read("--eval-bleu", command=command)


def test_no_flag_is_both_understood_and_advised_against() -> None:
    assert not FOREIGN.keys() & ADVICE.keys()


def test_all_unknown_flags_of_a_line_are_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read("data-bin/x", "--baem", "4", "--scoring", "bleu", "--d-model", "256", "--zzzz", "--baem", "5")
    assert str(caught.value) == (
        "(1) unknown flag --baem (did you mean '--beam'?); (2) --scoring is not a flag here: "
        f"{ADVICE['--scoring']}; (3) --d-model is not a flag; write the option's key: model.d_model=256; "
        "(4) unknown flag --zzzz; --help all lists them"
    )


def test_values_of_an_unknown_flag_are_not_taken_for_bare_arguments() -> None:
    with pytest.raises(UsageError) as caught:
        read("--zzzz", "a", "b", "--metrics", "bleu", command=ScoreConfig)
    assert str(caught.value) == "unknown flag --zzzz; --help all lists them"


def test_what_else_is_wrong_with_the_line_is_named_beside_unknown_flags() -> None:
    with pytest.raises(UsageError) as caught:
        read("--zzzz", "--beam")
    assert str(caught.value) == "(1) unknown flag --zzzz; --help all lists them; (2) --beam needs a value"


@pytest.mark.parametrize("value", [[], ["@@"], ["@@ "], ["subword_nmt"]])
def test_marks_of_pieces_may_be_named_as_fairseq_does(value: list[str]) -> None:
    line = read("data-bin/x", "--remove-bpe", *value, command=GenerateConfig)
    assert line.overrides == ("data=['data-bin/x']", "remove_bpe=subword_nmt")


def test_unknown_letters_are_flags_too_and_no_values_of_others() -> None:
    with pytest.raises(UsageError) as error:
        read("data-bin/x", "-s", "de", "-t", "en", "-q", "3", "--lr", "-1e-3")
    assert re.findall(r"\(\d\) (?:unknown flag )?(-\w)\b", str(error.value)) == ["-s", "-t", "-q"]


@pytest.mark.parametrize(("flag", "meant"), [("--beem", "'--beam'"), ("--foo", None), ("--fancy", None)])
def test_what_was_meant_is_guessed_from_the_letters_and_not_from_the_dashes(flag: str, meant: str | None) -> None:
    with pytest.raises(UsageError) as error:
        read(flag, "1", command=GenerateConfig)
    assert str(error.value) == f"unknown flag {flag}" + (
        f" (did you mean {meant}?)" if meant else "; --help all lists them"
    )


def test_translating_takes_no_seed_and_no_tokenizer() -> None:
    with pytest.raises(UsageError, match="--seed is not a flag here: only sampling is random; use --sampling-seed"):
        read("--seed", "7", command=GenerateConfig)
    for flag in ("--tokenizer", "--bpe"):
        with pytest.raises(
            UsageError, match=f"{flag} is not a flag here: give text in the form that nmt-preprocess read"
        ):
            read(flag, "moses", command=GenerateConfig)
    assert read("--bpe", "sentencepiece", command=PreprocessConfig).overrides == ("bpe=sentencepiece",)


def test_fairseqs_name_of_polynomial_is_a_preset_of_it() -> None:
    assert read("--lr-scheduler", "polynomial_decay").overrides == ("scheduler=polynomial_decay",)
    assert "polynomial_decay" in preset_names("scheduler")


@pytest.mark.parametrize("flag", ["--resume", "--continue", "--load-checkpoint", "--restore-file"])
def test_a_flag_that_would_resume_is_told_that_the_same_command_does(flag: str) -> None:
    with pytest.raises(
        UsageError, match=f"{flag} is not a flag here: the same command resumes from the last checkpoint"
    ):
        read("corpus", flag)


@pytest.mark.parametrize(
    ("argv", "overrides"),
    [
        (["--learning-rate", "0.1"], ["optimizer.lr=0.1"]),
        (["--epochs", "3"], ["training.max_epoch=3"]),
        (["--max-steps=30"], ["training.max_update=30"]),
        (["--output-dir", "runs/x"], ["checkpoint.save_dir='runs/x'"]),
        (["--gpu"], ["device.name='cuda'"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_name_of_another_toolkit_means_the_flag_of_ours(argv: list[str], overrides: list[str]) -> None:
    assert [*read(*argv).overrides] == overrides


def test_underscores_lead_to_the_same_flag() -> None:
    with pytest.raises(UsageError, match="did you mean '--learning-rate'"):
        read("--learning_rate", "0.1")
