"""The stages of nmt-monolingual: which there are, what they run, what is refused, and whole runs."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import numpy as np
import pytest

from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose
from nmt.config.composing.presets import preset_names
from nmt.config.monolingual import MonolingualConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.pipelines import commands
from nmt.pipelines.monolingual import MonolingualStages
from nmt.pipelines.stages import PipelineStage
from nmt.preprocessing.preprocess import preprocess
from nmt_cli.monolingual import run
from tests.commands import Copy, start_copy

WORDS = "a man woman dog cat boy girl runs sits jumps looks plays in on the red blue green street park".split()
ROUND = "pairs-en-de pairs-de-en reverse translate-de synthetic-en-de forward".split()
SECOND_ROUND = "translate-en-2 synthetic-de-en-2 reverse-2 translate-de-2 synthetic-en-de-2 forward-2".split()
STAGES = {
    "tagged": ROUND,
    "sampled": ROUND,
    "noised": ROUND,
    "iterated": [*ROUND, *SECOND_ROUND],
    "denoising": [*ROUND[:2], "sentences", "pretraining", *ROUND[2:]],
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Parallel texts of made-up words, and text of each side alone."""
    draw = random.Random(1)
    for name, count in (("train", 200), ("valid", 10), ("test", 10), ("mono", 60)):
        lines = [[draw.choice(WORDS) for _ in range(draw.randint(3, 9))] for _ in range(count)]
        (tmp_path / f"{name}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
        (tmp_path / f"{name}.de").write_text("".join(" ".join(f"{word[::-1]}x" for word in s) + "\n" for s in lines))
    return tmp_path


def words_of_run(text: Path, *more: str) -> list[str]:
    files = {"trainpref": "train", "validpref": "valid", "testpref": "test", "save_dir": "out"}
    words = [f"{key}={text / name}" for key, name in files.items()]
    words += [f"target_text=[{text}/mono.de]", "source_lang=en", "target_lang=de"]
    reads_source = {"method=iterated", "method=denoising", "iterations=2"} & {*more}
    return [*words, *([f"source_text=[{text}/mono.en]"] if reads_source else []), *more]


def configured(text: Path, *more: str) -> MonolingualConfig:
    config: MonolingualConfig = compose(MonolingualConfig, read(words_of_run(text, *more))).config
    return config


def stages_of(text: Path, *more: str) -> dict[str, PipelineStage]:
    return {stage.name: stage for stage in MonolingualStages(configured(text, *more)).stages()}


def line(stage: PipelineStage, program: str) -> str:
    return next(str(command) for command in stage.commands if command.words[0] == program)


def test_a_dry_run_of_each_method_checks_and_shows_its_stages(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {*STAGES} == {*preset_names("method")}
    for method, names in STAGES.items():
        run(configured(text, f"method={method}", "train.model=transformer_tiny", "dry_run=true"))
        shown = [row for row in capsys.readouterr().out.splitlines() if not row.startswith("    ")]
        assert shown == [f"{name}: to do" for name in [*names, "scores"]]
    assert not (text / "out").exists()


def test_methods_differ_in_tags_noise_and_search(text: Path) -> None:
    def said(method: str) -> tuple[bool, bool, str]:
        stages = stages_of(text, f"method={method}")
        tagged = "--user-defined-symbols '<bt>'" in line(stages["pairs-en-de"], "nmt-preprocess")
        sampled = "--search sampling" in line(stages["translate-de"], "nmt-generate")
        return tagged, sampled, str(stages["synthetic-en-de"].commands[0]).partition(" with ")[2]

    assert said("tagged") == (True, False, "tag=<bt> noise=none)")
    assert said("sampled") == (False, True, "tag=none noise=none)")
    noise = "drop_words=1.0:words=0.1,mask_words=1.0:words=0.1,shuffle_words=1.0:distance=3"
    assert said("noised") == (False, False, f"tag=none noise={noise})")


def test_all_models_start_from_the_denoising_one_and_the_second_round_learns_from_the_first(text: Path) -> None:
    stages = stages_of(text, "method=denoising", "iterations=2")
    for name in ("reverse", "forward", "reverse-2", "forward-2"):
        assert "--finetune-from-model ../pretraining" in line(stages[name], "nmt-train")
        assert "pretraining" in stages[name].needs
    assert "--augment mask_spans=1.0,shuffle_sentences=1.0 validation.interval=null" in line(
        stages["pretraining"], "nmt-train"
    )
    assert "--path ../forward --input text.en" in line(stages["translate-en-2"], "nmt-generate")
    assert line(stages["reverse-2"], "nmt-train").startswith(
        "nmt-train ../pairs-de-en/corpus ../synthetic-de-en-2/corpus --save-dir . "
    )
    assert "--path ../forward-2" in str(stages["scores"].commands[2])


def test_options_of_a_section_count_more_than_those_of_all_models(text: Path) -> None:
    more = ["train.max_epoch=3", "train.model=transformer_tiny", "train.model.d_model=64", "forward.max_epoch=9"]
    stages = stages_of(text, *more)
    assert line(stages["reverse"], "nmt-train").endswith("--max-epoch 3 --model transformer_tiny model.d_model=64")
    assert line(stages["forward"], "nmt-train").endswith("--max-epoch 9 --model transformer_tiny model.d_model=64")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["trainpref=''", "target_text=[]"], "--trainpref and --target-text have no value; --help explains them"),
        (["target_lang=en"], "--source-lang and --target-lang are both en; name two languages"),
        (["iterations=2", "source_text=[]"], "--iterations 2 needs text of the source language: --source-text FILE"),
        (["iterations=0"], "iterations=0"),
        (["noise=['mask_word=1']"], "mask_word"),
        (["target_text=[/nowhere/news]"], "/nowhere/news does not exist"),
        (["trainpref=/nowhere/train"], "neither /nowhere/train.en nor .* exists"),
        (["method=denoising", "source_text=[]", "iterations=2"], "--iterations 2 needs text of the source language"),
        (["source_text=[{text}/mono.en]"], "--source-text has no effect; omit it, or use it with --iterations 2 or"),
        (
            ["pretraining.max_update=9"],
            r"the options pretraining.\* have no effect without --pretrain; add it, or omit",
        ),
        (["train.augment=['typos=1']"], "train.augment: augmentation reads the stored text"),
        (["target_text=[{text}/empty.de]"], "empty.de has no text; each line should be a sentence"),
        (["method=iterated", "source_text=[{text}/blank.en]"], "blank.en has no text; each line should be a sentence"),
        (["target_text=[{text}/latin1.de]"], r"latin1.de:2:1: byte 0xfc is not UTF-8 .* \(--on-invalid-utf8\)"),
        (["max_line_bytes=30"], r"train.en:4: no line break in the 30 bytes .*--max-line-bytes"),
        (["validpref={text}/uneven"], "uneven.en has 2 lines, but .*uneven.de has 3; "),
        (["testpref={text}/uneven"], "uneven.en has 2 lines, but .*uneven.de has 3; "),
        (["forward.foo_bar=1"], "forward cannot run: nmt-train: unknown flag --foo-bar"),
        (["forward.lora_rank=4"], "forward cannot run: nmt-train: --lora-rank needs a trained model to adapt; name it"),
        (["forward.valid_metrics=[blue]"], "forward cannot run: nmt-train: unknown scorer 'blue'"),
        (["forward.model.max_positions=9"], "forward cannot run: nmt-train: model.max_positions=9 has no effect"),
        (["translate.search=greedy", "translate.mbr=bleu"], "translate-de cannot run: nmt-generate: "),
        (["translate.engine=nativ"], "translate-de cannot run: nmt-generate: unknown engine 'nativ'"),
        (
            ["preprocess.source_script=Klingon"],
            "pairs-en-de cannot run: nmt-preprocess: 'Klingon' is not a Unicode script",
        ),
        (
            ["reverse.save_dir=x"],
            "reverse cannot run: nmt-train: the pipeline sets checkpoint.save_dir itself or does not",
        ),
        (
            ["reverse.checkpoint.save_dir=x"],
            "reverse cannot run: nmt-train: the pipeline sets checkpoint.save_dir itself",
        ),
        (["preprocess.destdir=x"], "pairs-en-de cannot run: nmt-preprocess: the pipeline sets destdir itself"),
        (["translate.input=x"], "translate-de cannot run: nmt-generate: the pipeline sets input itself"),
        (["translate.nbest=2"], "translate-de cannot run: nmt-generate: the pipeline sets nbest itself"),
        (["train.dry_run=true"], "reverse cannot run: nmt-train: the pipeline sets dry_run itself"),
        (["train.help=true"], "reverse cannot run: nmt-train: the pipeline sets --help itself"),
        (["forward={model:{d_model:3}}"], "forward.model is a group of options; .* forward.model.KEY=VALUE"),
        (["forward.sampling_weights=[1,2,3]"], r"forward cannot run: nmt-train: 3 weights \(1 2 3\) for 2 corpora"),
        (["forward.sampling_stages=['epoch 2: 1']"], r"forward cannot run: nmt-train: 1 weight \(1\) for 2 corpora"),
        (["forward.finetune_from_model=/nowhere/run"], "/nowhere/run does not exist"),
        (["forward.parameters.source_embeddings=/nowhere/vectors"], "/nowhere/vectors does not exist"),
        (["preprocess.srcdict=/nowhere/corpus"], "/nowhere/corpus does not exist"),
        (["translate.shortlist=/nowhere/list"], "/nowhere/list does not exist"),
        (["train.valid_subset=foo"], "reverse cannot run: nmt-train: the pipeline sets valid_subset itself"),
        (["train.config=foo"], "reverse cannot run: nmt-train: the pipeline sets --config itself"),
        (
            ["pretrain=true", "forward.model.d_model=64"],
            "the models of forward and pretraining must have the same sizes",
        ),
        (["pretrain=true", "pretraining.model=lstm"], "the models of reverse and pretraining must have the same sizes"),
        (["preprocess.weight_suffix=weight"], "neither .*train.weight nor .* exists"),
        (
            ["preprocess.weight_column=3"],
            "pairs-en-de cannot run: nmt-preprocess: the pipeline sets weight_column itself",
        ),
        (
            ["preprocess.weight_kind=token"],
            "pairs-en-de cannot run: nmt-preprocess: the pipeline sets weight_kind itself",
        ),
        (["until=backward"], "there is no stage 'backward'.*; there are: pairs-en-de, "),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(text: Path, more: list[str], message: str) -> None:
    for name, content in {"empty.de": b"", "blank.en": b"\n \n", "latin1.de": b"gut\nf\xfcr\n"}.items():
        (text / name).write_bytes(content)
    (text / "uneven.en").write_text("a\nb\n")
    (text / "uneven.de").write_text("a\nb\nc\n")
    files = {*text.iterdir()}
    with pytest.raises((UsageError, DataError, MissingInputError), match=message):
        run(configured(text, *(word.replace("{text}", str(text)) for word in more), "dry_run=true"))
    assert {*text.iterdir()} == files


def test_a_tag_that_an_existing_vocabulary_lacks_is_refused(text: Path) -> None:
    train, corpus = str(text / "train"), str(text / "corpus")
    tokenizer = BpeConfig(vocab_size=100, user_defined_symbols=["<bt>"])
    preprocess(PreprocessConfig("en", "de", train, destdir=corpus, joined_dictionary=True, tokenizer=tokenizer))
    run(configured(text, "tag='<bt>'", f"preprocess.srcdict={corpus}", "dry_run=true"))
    with pytest.raises(
        UsageError, match=r"pairs-en-de cannot run: nmt-preprocess: .*corpus lacks <new> \(--user-defined"
    ):
        run(configured(text, "tag='<new>'", f"preprocess.srcdict={corpus}", "dry_run=true"))


def test_invalid_text_is_read_in_the_same_way_by_all_stages(text: Path) -> None:
    (text / "latin1.de").write_bytes(b"gut\nf\xfcr\n")
    options = ["method=denoising", f"target_text=[{text}/latin1.de]", "on_invalid_utf8=replace"]
    stages = stages_of(text, *options)
    readers = [
        command for stage in stages.values() for command in stage.commands if "--on-invalid-utf8" in command.words
    ]
    programs = Counter(command.words[0] for command in readers)
    assert programs == {"nmt-preprocess": 4, "nmt-generate": 1, "nmt-score": 1} | dict.fromkeys(
        ("train.en:", "train.de:", "sentences.en", "text.de"), 1
    )
    join = stages["translate-de"].commands[0]
    assert join.action is not None
    join.action(text)
    assert (text / "text.de").read_text() == "gut\nf\ufffdr\n"


def test_a_folder_of_others_is_left_alone(text: Path) -> None:
    (text / "out" / "forward").mkdir(parents=True)
    (text / "out" / "forward" / "precious").write_text("years of work")
    with pytest.raises(NMTError, match="forward exists, but no stage of this pipeline made it"):
        run(configured(text))
    assert sorted(path.name for path in (text / "out").iterdir()) == [".lock", "forward"]


TINY = ["train.model=transformer_tiny", "train.model.d_model=32", "train.threads=1", "preprocess.vocab_size=100"]
FASTER = [
    *("train.model.encoder_layers=1", "train.model.decoder_layers=1", "train.max_tokens=200", "train.max_update=2"),
    *("train.validation.interval=null", "translate.max_len_a=1", "translate.max_len_b=0"),
]


def start_as_copy(line: Sequence[str], *, cwd: Path, stdout: IO[bytes] | int, **_: object) -> Copy:
    """Start a command as ``subprocess.Popen`` does, but as a fork that need not import torch."""
    copy = start_copy(line[2].removeprefix("nmt_cli."), *line[3:], cwd=cwd)
    copy.stdin.close()
    output = copy.stdout.read()
    if not isinstance(stdout, int):
        stdout.write(output)
    return copy


def states(text: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, str]:
    """Return the states of all stages, by a dry run."""
    run(configured(text, *options, "dry_run=true"))
    rows = [row for row in capsys.readouterr().out.splitlines() if not row.startswith(" ")]
    return dict(row.split(": ", 1) for row in rows)


def test_a_whole_run_is_not_repeated_and_a_removed_stage_is_made_again(
    text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": start_as_copy}))
    options = ["method=denoising", "iterations=2", *TINY, *FASTER]
    run(configured(text, *options))
    first = capsys.readouterr()
    scores, folder = first.out.splitlines()[:-1], first.out.splitlines()[-1]
    assert [row.split("  ")[:2] for row in scores] == [["test", "forward"], ["test", "forward-2"]]
    assert folder == str(text / "out" / "forward-2")
    require_tag(text / "out" / "synthetic-en-de" / "corpus")
    run(configured(text, *options))
    again = capsys.readouterr()
    assert again.out == first.out
    assert all(row.endswith(": already done") for row in again.err.splitlines())

    shutil.rmtree(text / "out" / "synthetic-en-de")
    run(configured(text, *options))
    redone = [row for row in capsys.readouterr().err.splitlines() if row.endswith((": begins", ": runs again"))]
    assert redone == ["synthetic-en-de: begins"]  # with the same content, so nothing else runs again
    changed = states(text, capsys, *options, "forward.dropout=0.2")
    assert changed["reverse"] == changed["synthetic-en-de"] == "done"
    assert changed["forward"] == "stale (nmt-train changed: nothing -> --dropout 0.2)"


def test_pairs_keep_their_weights_in_both_directions_and_changed_input_is_noticed(
    text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": start_as_copy}))
    monkeypatch.chdir(text)
    make_vocabulary(text, 100)
    (text / "train.weight").write_text("".join(f"{number / 4}\n" for number in range(200)))
    filters = ["preprocess.weight_suffix=weight", "preprocess.max_characters=40"]
    options = [*filters, "preprocess.srcdict=vocabulary", "until=pairs-de-en"]
    run(configured(text, *options))
    stages = ("pairs-en-de", "pairs-de-en")
    kept = [
        number / 4
        for number, lines in enumerate(zip(*((text / f"train.{end}").read_text().splitlines() for end in ("en", "de"))))
        if max(map(len, lines)) <= 40
    ]
    assert 0 < len(kept) < 200
    for stage in stages:
        assert np.load(text / "out" / stage / "corpus" / "train.weights.npy").tolist() == kept
    capsys.readouterr()
    assert states(text, capsys, *options) == dict.fromkeys(stages, "done")
    (text / "valid.weight").write_text("2\n" * 10)
    assert all(state.startswith("stale") for state in states(text, capsys, *options).values())
    (text / "valid.weight").unlink()
    (text / "train.weight").write_text("1\n" * 200)
    assert all(state.startswith("stale") for state in states(text, capsys, *options).values())
    (text / "train.weight").write_text("".join(f"{number / 4}\n" for number in range(200)))
    make_vocabulary(text, 90)
    assert all(state.startswith("stale") for state in states(text, capsys, *options).values())


def make_vocabulary(text: Path, size: int) -> None:
    files, tokenizer = (
        {"trainpref": str(text / "train"), "destdir": str(text / "vocabulary")},
        BpeConfig(vocab_size=size),
    )
    preprocess(PreprocessConfig("en", "de", **files, joined_dictionary=True, tokenizer=tokenizer, overwrite=True))


def test_content_of_files_and_models_that_options_name_counts(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(text)
    (text / "vectors").touch()
    (text / "old").mkdir()
    (text / "old" / "manifest.json").touch()
    options = ["forward.parameters.source_embeddings=vectors", "forward.finetune_from_model=old"]
    stages = stages_of(text, *options)
    named = {f"parameters.source_embeddings={text}/vectors": ["vectors"], f"{text}/old": ["old/manifest.json"]}
    assert stages["forward"].outside == {word: [text / name for name in names] for word, names in named.items()}
    assert {*named} <= {*stages["forward"].commands[0].words} and not stages["reverse"].outside


def require_tag(corpus: Path) -> None:
    """Require that all sources begin with the same two tokens: the beginning of a word, and the tag."""
    tokens, starts = (np.load(corpus / f"train.en.{name}.npy") for name in ("tokens", "offsets"))
    assert len({*tokens[starts[:-1] + 1]}) == 1


def started(text: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nmt_cli.monolingual", *words_of_run(text, *TINY, "train.max_update=8", *more)]
    return subprocess.run(
        command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"), check=False
    )


@pytest.mark.nightly
@pytest.mark.parametrize("options", [["method=denoising"], ["method=noised", "translate.search=sampling"]])
def test_a_whole_run_of_processes_scores_its_model(text: Path, options: list[str]) -> None:
    first = started(text, *options)
    assert first.returncode == 0, first.stderr[-3000:]
    scores = json.loads((text / "out" / "scores" / "scores.json").read_text())
    assert [row["model"] for row in scores] == ["forward"]
    assert first.stdout.splitlines()[-1] == str(text / "out" / "forward")
    assert first.stdout.startswith("test  forward  BLEU ")
    again = started(text, *options)
    assert again.returncode == 0 and again.stdout == first.stdout
    assert all(row.endswith(": already done") for row in again.stderr.splitlines())
