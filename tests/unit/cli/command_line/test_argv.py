"""The pure rewriting of command lines."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package makes its components known
from nmt.config.choices import AlignmentKind
from nmt.config.commands import GenerateConfig, ScoreConfig
from nmt.config.option import Flag, FlagKind
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig
from nmt.errors import UsageError
from nmt_cli.command_line.argv import (
    HYDRA_SHORT,
    HYDRA_SWITCHES,
    HYDRA_VALUE_FLAGS,
    quoted,
    rewrite,
    run_folder_in,
    user_dir_in,
)
from nmt_cli.command_line.flags import grammar_of
from nmt_cli.command_line.grammar import Grammar


def flag(name: str, key: str, kind: FlagKind, default: object = None) -> Flag:
    return Flag(name, key, kind, "help", default)


FLAGS = [
    flag("--beam", "search.beam_size", FlagKind.plain, 5),
    flag("--lenpen", "search.lenpen", FlagKind.plain, 0.6),
    flag("--path", "path", FlagKind.text, ""),
    flag("--plug", "plugs", FlagKind.joined),
    flag("--metrics", "metrics", FlagKind.many, []),
    flag("--overwrite", "overwrite", FlagKind.switch, False),
    flag("--share", "model.share", FlagKind.switch, True),
    flag("--arch", "model", FlagKind.plain),
    flag("--device", "device.name", FlagKind.text, "auto"),
    flag("--betas", "optimizer.betas", FlagKind.many, [0.9, 0.98]),
    flag("--data", "data", FlagKind.many, []),
    Flag("--align", "align", FlagKind.optional, "help", AlignmentKind.none, AlignmentKind.hard),
]
GRAMMAR = Grammar(
    flags={f.name: f for f in FLAGS},
    groups=frozenset({"model", "search", "recipe"}),
    names=frozenset({"data", "path", "metrics", "overwrite", "seed", "model", "search", "device"}),
    bare="data",
    aliases={"--cpu": ("--device", "cpu"), "-a": ("--arch",)},
    advice={"--task": "omit it"},
    keys=lambda: {"--d-model": "model.d_model", "--model.d-model": "model.d_model"},
)

CASES: list[tuple[str, list[str], list[str]]] = [
    ("nothing", [], []),
    ("a plain flag stays sweepable", ["--beam", "1,5"], ["search.beam_size=1,5"]),
    ("flag=value", ["--lenpen=0.6"], ["search.lenpen=0.6"]),
    ("a negative number is a value", ["--lenpen", "-0.5"], ["search.lenpen=-0.5"]),
    ("text is quoted", ["--path", "a b,c=1.pt"], ["path='a b,c=1.pt'"]),
    ("a dash alone is a value", ["--path", "-"], ["path='-'"]),
    ("empty text is text", ["--path", ""], ["path=''"]),
    ("the value of text may contain an equals sign", ["--path=x=y"], ["path='x=y'"]),
    ("a switch", ["--overwrite"], ["overwrite=true"]),
    ("a switch with a value", ["--overwrite=false"], ["overwrite=false"]),
    ("a switch that is on by default", ["--no-share"], ["model.share=false"]),
    ("a text that is joined", ["--plug", "a", "--beam", "2", "--plug=b,c"], ["plugs='a,b,c'", "search.beam_size=2"]),
    ("a text that is joined takes one word", ["--plug", "a", "b"], ["data=['b']", "plugs='a'"]),
    ("many with commas", ["--metrics", "bleu,chrf"], ["metrics=['bleu','chrf']"]),
    ("many as words", ["--metrics", "bleu", "chrf", "--beam", "2"], ["metrics=['bleu','chrf']", "search.beam_size=2"]),
    ("many stops at an override", ["--metrics", "bleu", "seed=1"], ["metrics=['bleu']", "seed=1"]),
    ("many keeps a path with an equals sign", ["--metrics", "a", "runs/lr=1/x"], ["metrics=['a','runs/lr=1/x']"]),
    ("many as Python writes a tuple", ["--betas", "(0.9, 0.98)"], ["optimizer.betas=['0.9','0.98']"]),
    (
        "many given twice",
        ["--metrics", "a", "--beam", "2", "--metrics=b,c"],
        ["metrics=['a','b','c']", "search.beam_size=2"],
    ),
    ("a bare argument beside its flag", ["a", "--data", "b,c", "d"], ["data=['a','b','c','d']"]),
    ("a bare argument after its flag", ["--data", "b", "--overwrite", "a"], ["data=['b','a']", "overwrite=true"]),
    (
        "one value given twice: the last counts",
        ["--beam", "1", "--beam", "2"],
        ["search.beam_size=1", "search.beam_size=2"],
    ),
    ("a group chosen by flag", ["--arch", "tiny"], ["model=tiny"]),
    ("a group chosen by short alias", ["-a", "tiny"], ["model=tiny"]),
    ("an alias with its value inside", ["--cpu", "seed=1"], ["device.name='cpu'", "seed=1"]),
    ("an alias with =", ["-a=tiny"], ["model=tiny"]),
    ("+group loses its plus", ["+model=tiny"], ["model=tiny"]),
    ("+group of whole experiments too", ["+recipe=x"], ["recipe=x"]),
    ("+key loses its plus", ["+model.new=1", "+seed=2", "++seed=3"], ["model.new=1", "seed=2", "seed=3"]),
    ("options of Hydra keep their signs", ["+hydra.y=1", "~hydra.x=1"], ["+hydra.y=1", "~hydra.x=1"]),
    ("a bare argument is data", ["data-bin/x"], ["data=['data-bin/x']"]),
    ("several bare arguments", ["a", "seed=1", "b"], ["data=['a','b']", "seed=1"]),
    ("a bare path with an equals sign", ["runs/lr=1/x"], ["data=['runs/lr=1/x']"]),
    ("one word for a list", ["data=data-bin/x", "metrics='a,b'"], ["data=[data-bin/x]", "metrics=['a,b']"]),
    ("lists and sweeps stay", ["data=[a,b]", "metrics=a,b", "data=null"], ["data=[a,b]", "metrics=a,b", "data=null"]),
    ("a group override with a slash", ["hydra/launcher=joblib"], ["hydra/launcher=joblib"]),
    ("an optional value left out at the end", ["--align"], ["align=hard"]),
    ("an optional value left out before a flag", ["--align", "--beam", "2"], ["align=hard", "search.beam_size=2"]),
    ("an optional value left out before a folder", ["--align", "x"], ["data=['x']", "align=hard"]),
    ("an optional value left out before an override", ["--align", "seed=1"], ["align=hard", "seed=1"]),
    ("an optional value given", ["--align", "soft", "x"], ["data=['x']", "align=soft"]),
    ("an optional value after =", ["--align=soft"], ["align=soft"]),
    ("a sweep over an optional value", ["--align", "hard,soft"], ["align=hard,soft"]),
    ("all mixed", ["x", "--beam", "4", "-m", "+model=t"], ["data=['x']", "search.beam_size=4", "model=t"]),
]


@pytest.mark.parametrize(("argv", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_command_line_is_rewritten(argv: list[str], expected: list[str]) -> None:
    assert [*rewrite(argv, GRAMMAR).overrides] == expected


@pytest.mark.parametrize(
    ("argv", "hydra", "overrides"),
    [
        (["--cfg", "job", "seed=1"], {"--cfg": "job"}, ("seed=1",)),
        (["x", "--hydra-help"], {"--hydra-help": ""}, ("data=['x']",)),
        (["-c", "job", "-p", "x"], {"--cfg": "job", "--package": "x"}, ()),
        (["--cfg=job", "--resolve"], {"--cfg": "job", "--resolve": ""}, ()),
        (["--info", "seed=1"], {"--info": "all"}, ("seed=1",)),
        (["-i", "searchpath", "seed=1"], {"--info": "searchpath"}, ("seed=1",)),
        (["--beam", "4", "-m", "+model=t"], {"--multirun": ""}, ("search.beam_size=4", "model=t")),
        (["-cd", "a", "-cn", "b", "-cp=c"], {"--config-dir": "a", "--config-name": "b", "--config-path": "c"}, ()),
    ],
)
def test_flags_of_hydra_have_one_name_and_stand_anywhere(
    argv: list[str], hydra: dict[str, str], overrides: tuple[str, ...]
) -> None:
    line = rewrite(argv, GRAMMAR)
    assert (line.hydra, line.overrides) == (hydra, overrides)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--cfg", "job", "--info"], "--cfg and --info exclude each other; give one of them"),
        (["-m", "--info"], "--multirun and --info exclude each other; give one of them"),
        (["--resolve"], "--resolve belongs to --cfg; add --cfg job"),
    ],
)
def test_flags_of_hydra_that_exclude_each_other_are_refused(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        rewrite(argv, GRAMMAR)


def test_a_path_with_an_equals_sign_may_begin_like_a_key() -> None:
    """No key has a slash after an option; a group has, as in "hydra/launcher"."""
    assert [*rewrite(["data/sweep/seed=1"], GRAMMAR).overrides] == ["data=['data/sweep/seed=1']"]
    assert [*rewrite(["model/x=1", "+data/x=1"], GRAMMAR).overrides] == ["model/x=1", "data/x=1"]


def test_a_bare_argument_with_an_equals_sign_is_a_path_if_it_exists_and_is_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("optimizer.lr=0.0005", "seed=1"):
        (tmp_path / name).mkdir()
    found = rewrite(["optimizer.lr=0.0005", "optimizer.lr=0.1", "seed=1"], GRAMMAR)
    assert [*found.overrides] == ["data=['optimizer.lr=0.0005']", "optimizer.lr=0.1", "seed=1"]
    assert [*rewrite(["--metrics", "a", "optimizer.lr=0.0005"], GRAMMAR).overrides] == [
        "metrics=['a','optimizer.lr=0.0005']"
    ]
    assert [*rewrite(["path=optimizer.lr=0.0005"], GRAMMAR).overrides] == ["path='optimizer.lr=0.0005'"]
    of_training = replace(GRAMMAR, names=GRAMMAR.names | {"optimizer"})
    assert [*rewrite(["optimizer.lr=0.0005"], of_training).overrides] == ["optimizer.lr=0.0005"]


REFUSED: list[tuple[str, list[str], str]] = [
    ("taking a group away", ["~model"], "~model: options cannot be deleted; set another value with KEY=VALUE"),
    ("taking a value away", ["~seed=1"], "~seed=1: options cannot be deleted; set another value with KEY=VALUE"),
    (
        "a list of presets",
        ["model=[a,b]"],
        "model=[a,b]: give one name, model=NAME; -m model=A,B runs each of several",
    ),
    (
        "a mapping for a preset",
        ["model={a:1}"],
        "model={a:1}: give one name, model=NAME; -m model=A,B runs each of several",
    ),
    (
        "a preset in another place",
        ["+model@x=tiny"],
        "+model@x=tiny: give one name, model=NAME; -m model=A,B runs each of several",
    ),
    ("a key as a flag", ["--d-model", "256"], "--d-model is not a flag; write the option's key: model.d_model=256"),
    (
        "a key as a flag, with =",
        ["--d-model=256"],
        "--d-model is not a flag; write the option's key: model.d_model=256",
    ),
    (
        "a whole key as a flag",
        ["--model.d_model", "2"],
        "--model.d_model is not a flag; write the option's key: model.d_model=2",
    ),
    ("a key as a flag, alone", ["--d_model"], "--d_model is not a flag; write the option's key: model.d_model=VALUE"),
    ("a flag instead of a value", ["--beam", "--cfg", "job"], "--beam needs a value"),
    ("a short flag of Hydra instead of a value", ["--beam", "-m"], "--beam needs a value"),
    ("nothing instead of a value", ["--path"], "--path needs a value"),
    ("nothing after =", ["--beam="], "--beam needs a value"),
    ("a list without items", ["--metrics", "--beam", "3"], "--metrics needs a value"),
    ("a misspelt flag", ["--baem", "4"], "unknown flag --baem (did you mean '--beam'?)"),
    ("underscores", ["--be_am", "4"], "unknown flag --be_am (did you mean '--beam'?)"),
    ("nothing like it", ["--zzzz"], "unknown flag --zzzz; --help all lists them"),
    ("a letter", ["-x"], "unknown flag -x; --help all lists them"),
    ("a flag of fairseq", ["--task", "translation"], "--task is not a flag here: omit it"),
    ("--no- for what is off", ["--no-overwrite"], "unknown flag --no-overwrite (did you mean '--overwrite'?)"),
    ("a value that Hydra does not know", ["--cfg", "jobb"], "--cfg jobb: choose one of job, hydra, all"),
    ("a pickle", ["--experimental-rerun", "x.pickle"], "unknown flag --experimental-rerun; --help all lists them"),
    (
        "a list as a whole between its parts",
        ["--metrics", "a", "metrics=[b]", "--metrics", "c"],
        "metrics=[b]: a flag or a bare argument sets metrics too; set it once",
    ),
    (
        "a list as a whole after a bare argument",
        ["x", "data=y"],
        "data=y: a flag or a bare argument sets data too; set it once",
    ),
    ("a value for a negation", ["--no-share=true"], "--no-share takes no value"),
    ("a value for a switch of Hydra", ["--multirun=1"], "--multirun takes no value"),
]


@pytest.mark.parametrize(("argv", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_wrong_command_line_is_refused_in_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        rewrite(argv, GRAMMAR)
    assert str(caught.value) == message


@pytest.mark.parametrize("word", ["subword", "none,sentencepeice", "out.en"])
def test_a_word_after_a_flag_that_may_stand_alone_is_a_bare_argument_unless_it_is_its_value(word: str) -> None:
    line = rewrite(["--remove-bpe", word, "--ref", "r"], grammar_of(ScoreConfig))
    assert {f"sys=['{word}']", "remove_bpe=subword_nmt"} <= set(line.overrides)


@pytest.mark.parametrize("after", [[], ["--ref", "r"], ["format=json"], ["-r", "r"]])
def test_a_flag_may_stand_alone_before_others(after: list[str]) -> None:
    line = rewrite(["--remove-bpe", *after], grammar_of(ScoreConfig))
    assert "remove_bpe=subword_nmt" in line.overrides


def test_a_command_without_data_refuses_bare_arguments() -> None:
    with pytest.raises(UsageError, match="'x' is neither a flag nor key=value"):
        rewrite(["x"], Grammar(flags={}))


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x00"), max_size=30).filter(lambda t: "${" not in t)
)
def test_quoted_text_survives_hydras_grammar(text: str) -> None:
    parsed = OverridesParser.create().parse_override(f"key={quoted(text)}")
    value = parsed.value()
    assert str(value) == text


@pytest.mark.parametrize("text", [r"C:\dir\x", r"ends in \ ".strip(), r"a\'b", "it's", '"x"', "a,b", "{a: 1}", "[1]"])
def test_quoting_keeps_awkward_text(text: str) -> None:
    assert str(OverridesParser.create().parse_override(f"key={quoted(text)}").value()) == text


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["--user-dir", "a b"], "a b"),
        (["x", "--user-dir=plug"], "plug"),
        (["user_dir=plug", "seed=1"], "plug"),
        (["+user_dir='a b'"], "a b"),
        (["user_dir=null"], None),
        (["--user-dir", "a.py", "--user-dir=b,c"], "a.py,b,c"),
        (["--user-dir", "a.py", "user_dir=b"], "b"),
        (["--seed", "1"], None),
        (["--user-dir"], None),
    ],
)
def test_the_plugin_folder_is_found_before_flags_are_known(argv: list[str], found: str | None) -> None:
    assert user_dir_in(argv) == found


def test_only_printing_command_lines_are_recognised() -> None:
    assert rewrite(["--help"], GRAMMAR).only_prints
    assert rewrite(["seed=1", "-c", "job"], GRAMMAR).only_prints
    assert not rewrite(["seed=1", "-m"], GRAMMAR).only_prints


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Hydra 1.3 cannot build its argument parser (its issue 3121)")
def test_hydras_flags_and_their_choices_are_the_ones_we_know() -> None:
    from hydra._internal.utils import get_args_parser

    takes_value, switches, short = dict[str, tuple[str, ...]](), set[str](), dict[str, str]()
    for action in get_args_parser()._actions:
        for long, *others in [action.option_strings] if action.option_strings else []:
            if long in ("--shell-completion", "--experimental-rerun"):  # left out on purpose
                continue
            short |= dict.fromkeys(others, long)
            if action.nargs == 0:
                switches.add(long)
            else:
                takes_value[long] = tuple(action.choices or ())
    switches.remove("--help")  # nmt reads a topic after it
    assert (takes_value, switches, short) == (HYDRA_VALUE_FLAGS, HYDRA_SWITCHES, HYDRA_SHORT)


@pytest.mark.parametrize(
    ("command", "argv", "advice"),
    [
        (TrainConfig, ["--encoder-embed-dim", "256"], "use model.d_model=N"),
        (TrainConfig, ["--decoder-ffn-embed-dim", "9"], "use model.d_ff=N"),
        (TrainConfig, ["--encoder-attention-heads", "4"], "use model.num_heads=N"),
        (TrainConfig, ["--encoder-normalize-before"], "use model.norm=pre"),
        (TrainConfig, ["--decoder-learned-pos"], "use model.positions=learned"),
        (TrainConfig, ["-s", "de"], "corpora and models record their languages"),
        (TrainConfig, ["--source-lang", "de"], "corpora and models record their languages"),
        (GenerateConfig, ["--quiet"], "--progress none"),
        (GenerateConfig, ["--unkpen", "1"], "omit it"),
    ],
)
def test_flags_of_fairseq_without_counterpart_are_answered_with_advice(
    command: type, argv: list[str], advice: str
) -> None:
    with pytest.raises(UsageError, match=f"^{argv[0]} is not a flag here: .*{advice}"):
        rewrite(argv, grammar_of(command))


def test_fairseqs_switch_for_sampling_chooses_the_search() -> None:

    assert rewrite(["--sampling"], grammar_of(GenerateConfig)).overrides == ("search=sampling",)


def test_the_languages_are_flags_of_preprocessing() -> None:
    assert rewrite(["-s", "de"], grammar_of(PreprocessConfig)).overrides == ("source_lang='de'",)


def test_fairseqs_letters_for_the_files_that_are_scored_are_those_files() -> None:
    """Also after a list, and although -r is a switch of Hydra's."""
    for letters in (["--ref", "a", "-s", "b"], ["-s", "b", "-r", "a"]):
        assert sorted(rewrite(letters, grammar_of(ScoreConfig)).overrides) == ["ref=['a']", "sys=['b']"]


@pytest.mark.parametrize(
    ("argument", "advice"),
    [("data.stages=x", r"did you mean 'sampling.stages'\?"), ("data.0=x", r"set the whole list, data=\[...\]")],
)
def test_a_list_has_no_options_of_its_own(argument: str, advice: str) -> None:
    with pytest.raises(UsageError, match=f"^{argument}: data is a list and has no options.*{advice}"):
        rewrite([argument], grammar_of(TrainConfig))


@pytest.mark.parametrize(
    ("argv", "folder"),
    [
        (["data-bin/x"], "checkpoints"),
        (["data-bin/x", "--save-dir", "runs/a"], "runs/a"),
        (["--output-dir=runs/a", "data-bin/x"], "runs/a"),
        (["+checkpoint.save_dir=runs/a"], "runs/a"),
        (["--save-dir"], "checkpoints"),
        (["--config", "runs/b"], None),
        (["--config=runs/b", "--save-dir", "runs/a"], "runs/a"),
    ],
)
def test_the_run_folder_of_a_command_line_is_known_before_it_is_read(argv: list[str], folder: str | None) -> None:
    assert run_folder_in(argv, "checkpoints") == folder
