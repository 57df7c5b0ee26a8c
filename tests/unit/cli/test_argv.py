"""The pure rewriting of command lines."""

from __future__ import annotations

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
from nmt_cli.argv import (
    HYDRA_SWITCHES,
    HYDRA_VALUE_FLAGS,
    INFO_CHOICES,
    INFO_FLAGS,
    Grammar,
    quoted,
    rewrite,
    user_dir_in,
)
from nmt_cli.flags import grammar


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
    advice={"--task": "leave it out"},
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
    ("+key keeps its plus", ["+model.new=1", "+seed=2"], ["+model.new=1", "+seed=2"]),
    ("++ stays, and ~ of Hydra's own", ["++seed=2", "~hydra.x=1"], ["++seed=2", "~hydra.x=1"]),
    ("a bare argument is data", ["data-bin/x"], ["data=['data-bin/x']"]),
    ("several bare arguments", ["a", "seed=1", "b"], ["data=['a','b']", "seed=1"]),
    ("a bare path with an equals sign", ["runs/lr=1/x"], ["data=['runs/lr=1/x']"]),
    ("one word for a list", ["data=data-bin/x", "metrics='a,b'"], ["data=[data-bin/x]", "metrics=['a,b']"]),
    ("lists and sweeps stay", ["data=[a,b]", "metrics=a,b", "data=null"], ["data=[a,b]", "metrics=a,b", "data=null"]),
    ("a group override with a slash", ["hydra/launcher=joblib"], ["hydra/launcher=joblib"]),
    ("Hydra's flags go last", ["--cfg", "job", "seed=1"], ["seed=1", "--cfg", "job"]),
    ("help about Hydra concerns no option of ours", ["x", "--hydra-help", "seed=1"], ["--hydra-help"]),
    ("Hydra's short flags", ["-c", "job", "-p", "x", "-m"], ["-c", "job", "-p", "x", "-m"]),
    ("Hydra's flags with =", ["--cfg=job", "seed=1"], ["seed=1", "--cfg", "job"]),
    ("--info alone", ["--info", "seed=1"], ["seed=1", "--info", "all"]),
    ("--info with a choice", ["--info", "searchpath", "seed=1"], ["seed=1", "--info", "searchpath"]),
    ("an optional value left out at the end", ["--align"], ["align=hard"]),
    ("an optional value left out before a flag", ["--align", "--beam", "2"], ["align=hard", "search.beam_size=2"]),
    ("an optional value left out before a folder", ["--align", "x"], ["data=['x']", "align=hard"]),
    ("an optional value left out before an override", ["--align", "seed=1"], ["align=hard", "seed=1"]),
    ("an optional value given", ["--align", "soft", "x"], ["data=['x']", "align=soft"]),
    ("an optional value after =", ["--align=soft"], ["align=soft"]),
    ("a sweep over an optional value", ["--align", "hard,soft"], ["align=hard,soft"]),
    ("all mixed", ["x", "--beam", "4", "-m", "+model=t"], ["data=['x']", "search.beam_size=4", "model=t", "-m"]),
]


@pytest.mark.parametrize(("argv", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_command_line_is_rewritten(argv: list[str], expected: list[str]) -> None:
    assert rewrite(argv, GRAMMAR).argv == expected


REFUSED: list[tuple[str, list[str], str]] = [
    ("taking a group away", ["~model"], "~model: no option can be taken away; give it another value with KEY=VALUE"),
    ("taking a value away", ["~seed=1"], "~seed=1: no option can be taken away; give it another value with KEY=VALUE"),
    (
        "a list of presets",
        ["model=[a,b]"],
        "model=[a,b]: choose one by its name, model=NAME; with -m model=A,B runs each of them",
    ),
    (
        "a mapping for a preset",
        ["model={a:1}"],
        "model={a:1}: choose one by its name, model=NAME; with -m model=A,B runs each of them",
    ),
    (
        "a preset in another place",
        ["+model@x=tiny"],
        "+model@x=tiny: choose one by its name, model=NAME; with -m model=A,B runs each of them",
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
    ("nothing like it", ["--zzzz"], "unknown flag --zzzz; --help lists them"),
    ("a letter", ["-x"], "unknown flag -x; --help lists them"),
    ("a flag of fairseq", ["--task", "translation"], "--task is not a flag here: leave it out"),
    ("--no- for what is off", ["--no-overwrite"], "unknown flag --no-overwrite (did you mean '--overwrite'?)"),
    ("a value that Hydra does not know", ["--cfg", "jobb"], "--cfg jobb: choose one of job, hydra, all"),
    ("a pickle", ["--experimental-rerun", "x.pickle"], "unknown flag --experimental-rerun; --help lists them"),
    (
        "a list as a whole between its parts",
        ["--metrics", "a", "metrics=[b]", "--metrics", "c"],
        "metrics=[b]: a flag or a bare argument gives metrics too; write it in one of these ways",
    ),
    (
        "a list as a whole after a bare argument",
        ["x", "data=y"],
        "data=y: a flag or a bare argument gives data too; write it in one of these ways",
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
    line = rewrite(["--remove-bpe", word, "--ref", "r"], grammar(ScoreConfig, []))
    assert {f"sys=['{word}']", "remove_bpe=subword_nmt"} <= set(line.overrides)


@pytest.mark.parametrize("after", [[], ["--ref", "r"], ["format=json"], ["-r", "r"]])
def test_a_flag_may_stand_alone_before_others(after: list[str]) -> None:
    line = rewrite(["--remove-bpe", *after], grammar(ScoreConfig, []))
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


def test_hydras_flags_are_the_ones_we_know() -> None:
    from hydra._internal.utils import get_args_parser

    takes_value, switches = set[str](), set[str]()
    for action in get_args_parser()._actions:
        (takes_value if action.nargs != 0 else switches).update(action.option_strings)
    assert takes_value - {"--experimental-rerun"} == set(HYDRA_VALUE_FLAGS) | INFO_FLAGS
    assert switches == HYDRA_SWITCHES


def test_hydras_choices_are_the_ones_we_know() -> None:
    from hydra._internal.utils import get_args_parser

    choices = {name: action.choices for action in get_args_parser()._actions for name in action.option_strings}
    for name, ours in HYDRA_VALUE_FLAGS.items():
        assert tuple(choices[name] or ()) == ours
    assert tuple(choices["--info"] or ()) == INFO_CHOICES


@pytest.mark.parametrize(
    ("command", "argv", "advice"),
    [
        (TrainConfig, ["--encoder-embed-dim", "256"], "use model.d_model=N"),
        (TrainConfig, ["--decoder-ffn-embed-dim", "9"], "use model.d_ff=N"),
        (TrainConfig, ["--encoder-attention-heads", "4"], "use model.num_heads=N"),
        (TrainConfig, ["--encoder-normalize-before"], "use model.norm=pre"),
        (TrainConfig, ["--decoder-learned-pos"], "use model.positions=learned"),
        (GenerateConfig, ["-s", "de"], "only nmt-preprocess needs it"),
        (GenerateConfig, ["--source-lang", "de"], "only nmt-preprocess needs it"),
        (GenerateConfig, ["--quiet"], "--progress none"),
        (GenerateConfig, ["--unkpen", "1"], "leave it out"),
    ],
)
def test_flags_of_fairseq_without_counterpart_are_answered_with_advice(
    command: type, argv: list[str], advice: str
) -> None:
    with pytest.raises(UsageError, match=f"^{argv[0]} is not a flag here: .*{advice}"):
        rewrite(argv, grammar(command, []))


def test_fairseqs_switch_for_sampling_chooses_the_search() -> None:

    assert rewrite(["--sampling"], grammar(GenerateConfig, ["search"])).argv == ["search=sampling"]


def test_the_languages_are_flags_of_preprocessing() -> None:
    assert rewrite(["-s", "de"], grammar(PreprocessConfig, [])).argv == ["source_lang='de'"]


def test_fairseqs_letters_for_the_files_that_are_scored_are_those_files() -> None:
    """Also after a list, and although -r is a switch of Hydra's."""
    for letters in (["--ref", "a", "-s", "b"], ["-s", "b", "-r", "a"]):
        assert sorted(rewrite(letters, grammar(ScoreConfig, [])).argv) == ["ref=['a']", "sys=['b']"]


@pytest.mark.parametrize(
    ("argument", "advice"),
    [("data.stages=x", r"did you mean 'sampling.stages'\?"), ("data.0=x", r"give it as a whole, data=\[...\]")],
)
def test_a_list_has_no_options_of_its_own(argument: str, advice: str) -> None:
    with pytest.raises(UsageError, match=f"^{argument}: data is a list and has no options of its own.*{advice}"):
        rewrite([argument], grammar(TrainConfig, ["model"]))
