"""What files have in place of a command's defaults: configurations of runs, and the search of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401  (each fills its registry)
from nmt.config.commands import AverageConfig, GenerateConfig, ScoreConfig, ShortlistConfig
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import Composition, compose
from nmt.config.composing.help import help_page
from nmt.config.composing.programs import program_of
from nmt.config.plain import to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.search.config import BeamConfig, DiverseBeamConfig, GreedyConfig, SamplingConfig
from nmt.serving.config import ServeConfig
from nmt_cli.command_line.argv import rewrite, take_config
from nmt_cli.command_line.config_file import ConfigFile, base_of, text_of, with_search_of_model
from nmt_cli.command_line.flags import grammar_of

COMMANDS: dict[str, type] = {
    "train": TrainConfig,
    "generate": GenerateConfig,
    "preprocess": PreprocessConfig,
    "score": ScoreConfig,
    "average_checkpoints": AverageConfig,
    "shortlist": ShortlistConfig,
    "serve": ServeConfig,
}
MakeModel = Callable[..., str]


def composition(command: str, *argv: str) -> Composition:
    """What a command line leads to, as the launcher makes it."""
    rest, named = take_config(argv)
    config_class = COMMANDS[command]
    line = rewrite(rest, grammar_of(config_class))
    assignments = read(line.overrides)
    base = base_of(config_class, line, None if named is None else ConfigFile.read(named))
    if command == "generate":
        assignments, base = with_search_of_model(config_class, assignments, (), base, tell=not line.only_prints)
    return compose(config_class, assignments, (), base)


def configuration(command: str, *argv: str) -> Any:
    return composition(command, *argv).config


def printed(command: str, *argv: str, package: str | None = None, resolve: bool = False) -> str:
    return text_of(composition(command, *argv), package, resolve=resolve)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    """The configuration of a run with options of several components and sections."""
    line = (
        "x y +model=lstm_tiny --dropout 0.25 --lr 0.01 --lr-scheduler linear --beam 3 --max-epoch 4 --save-dir runs/a"
    )
    tree = to_plain(configuration("train", *line.split()))
    return write(tmp_path / "config.yaml", yaml.safe_dump(tree, sort_keys=False))


def test_a_file_may_leave_to_the_line_what_its_options_need(tmp_path: Path) -> None:
    file = write(tmp_path / "valid.yaml", "gen_subset: valid\nscore_reference: true\n")
    config = configuration("generate", "data-bin", "--config", file, "--path", "m", "--format", "jsonl")
    assert (config.gen_subset, config.score_reference, config.data) == ("valid", True, ["data-bin"])
    with pytest.raises(UsageError, match="--gen-subset valid is a split of a corpus folder; name the folder too"):
        configuration("generate", "--config", file, "--path", "m")


def test_an_option_that_is_gone_and_had_no_effect_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text("training: {max_update: 7, cuda_graphs: false}\n")
    assert ConfigFile.read(str(file)).tree == {"training": {"max_update": 7}}
    file.write_text("training: {max_update: 7, cuda_graphs: true}\n")
    with pytest.raises(UsageError, match="the option training.cuda_graphs was removed; delete it"):
        ConfigFile.read(str(file))


@pytest.mark.parametrize(("stored", "today"), [("false", "none"), ("true", "layers"), ("step", "step")])
def test_values_of_earlier_versions_are_replaced(stored: str, today: str, tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(f"training: {{max_update: 7, compile: {stored}}}\n")
    assert ConfigFile.read(str(file)).tree == {"training": {"max_update": 7, "compile": today}}


def test_names_of_earlier_versions_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text("model: {name: transformer, encoder_neighbourhood: 3, dropout: 0.5, decoder_neighbourhood: null}\n")
    model = {"name": "transformer", "encoder_neighborhood": 3, "dropout": 0.5, "decoder_neighborhood": None}
    assert ConfigFile.read(str(file)).tree == {"model": model}


def test_a_run_is_repeated_from_its_file(run_file: str) -> None:
    again = configuration("train", "--config", run_file)
    assert to_plain(again) == yaml.safe_load(Path(run_file).read_text())


def test_the_help_page_knows_of_files() -> None:
    for topic in ("all", "syntax"):
        assert "--config FILE" in help_page(TrainConfig, topic=topic)


def test_a_folder_stands_for_the_configuration_in_it(run_file: str) -> None:
    folder = str(Path(run_file).parent)
    assert configuration("train", f"--config={folder}") == configuration("train", "--config", run_file)


def test_flags_overrides_and_corpora_win_over_the_file(run_file: str) -> None:
    again = configuration("train", "z", "--config", run_file, "--lr", "0.5", "model.dropout=0", "checkpoint.save_dir=b")
    assert (again.data, again.optimizer.lr, again.model.dropout, again.checkpoint.save_dir) == (["z"], 0.5, 0.0, "b")
    assert again.training.max_epoch == 4 and again.search.beam_size == 3


def test_another_choice_drops_the_options_of_the_one_in_the_file(run_file: str) -> None:
    again = configuration("train", "--config", run_file, "model=lstm_tiny", "search=greedy")
    assert again.model == configuration("train", "model=lstm_tiny").model and again.search == GreedyConfig()
    assert again.optimizer.lr == 0.01


def test_a_recipe_is_composed_on_the_file(run_file: str) -> None:
    again = configuration("train", "--config", run_file, "recipe=vaswani_base")
    assert again.model == configuration("train", "model=transformer_base").model
    assert (again.batching.max_tokens, again.training.max_epoch) == (3125, 4)


def test_a_file_may_leave_out_what_is_to_be_as_usual(tmp_path: Path) -> None:
    file = write(tmp_path / "part.yaml", "model: {name: lstm, hidden_size: 32}\noptimizer: {name: adam, lr: 1e-3}\n")
    again, usual = configuration("train", "--config", file), configuration("train")
    assert (again.model.hidden_size, again.optimizer.lr) == (32, 0.001)
    assert (again.scheduler, again.training, again.search) == (usual.scheduler, usual.training, usual.search)


def test_a_file_may_choose_nothing(tmp_path: Path) -> None:
    assert configuration("train", "--config", write(tmp_path / "none.yaml", "search: null\n")).search is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("train", ["x", "recipe=vaswani_big", "--lr-scales", "a.*=0.1", "--precision", "bf16", "--stop", "all"]),
        ("train", ["x", "seed=${training.max_bad_updates}"]),
        ("generate", ["--path", "a:b", "search=diverse_beam", "--print-alignment", "--format", "jsonl"]),
        ("preprocess", ["tokenizer=words", "--validpref", "a,b"]),
        ("score", ["--ref", "a", "b", "--metrics", "bleu,ter"]),
    ],
)
def test_what_is_printed_is_what_a_file_gives_back(tmp_path: Path, command: str, arguments: list[str]) -> None:
    file = write(tmp_path / "printed.yaml", printed(command, *arguments))
    assert configuration(command, "--config", file) == configuration(command, *arguments)


def test_what_is_printed_has_the_form_of_a_stored_configuration() -> None:
    line = ["x", "recipe=vaswani_base", "--precision", "auto"]
    text = printed("train", *line)
    comment, _, rest = text.partition("\n")
    assert comment.startswith("# ") and comment.endswith(" recipe=vaswani_base")
    assert rest == yaml.safe_dump(to_plain(configuration("train", *line)), sort_keys=False, allow_unicode=True)
    assert "\nmodel:\n  name: transformer\n" in text


def test_presets_are_named_in_a_comment() -> None:
    text = printed("train", "model=transformer_big")
    assert text.startswith("# model=transformer_big criterion=label_smoothed_cross_entropy optimizer=adam ")
    assert text.splitlines()[1] == "data: []"


def test_a_part_is_printed_with_its_place_and_a_value_alone() -> None:
    assert printed("train", package="optimizer").startswith("# @package optimizer\nname: adam\nlr: null\n")
    assert printed("train", package="training.max_bad_updates") == "10\n"
    with pytest.raises(UsageError, match="--package training.nothing is not a section"):
        printed("train", package="training.nothing")


def test_interpolations_stay_unless_they_are_to_be_resolved() -> None:
    given = "seed=${training.max_bad_updates}"
    assert printed("train", given, package="seed") == "${training.max_bad_updates}\n"
    assert printed("train", given, package="seed", resolve=True) == "10\n"


WRONG_FILES: list[tuple[str, str, type[NMTError], str]] = [
    (
        "an unknown key",
        "training: {max_updates: 3}",
        DataError,
        "does not know the option training.max_updates .did you",
    ),
    (
        "another command's",
        "path: x\ninput: y\nnbest: 2",
        UsageError,
        "is a configuration of nmt-generate, not of nmt-train; use it with",
    ),
    ("as much another command's", "path: x\nseed: 1", DataError, "does not know the option path"),
    ("an unknown component", "model: {name: transformr}", UsageError, "unknown model 'transformr' .did you mean"),
    ("no name", "model: {d_model: 3}", DataError, "the section of the model has no name"),
    ("a wrong type", "seed: one", DataError, "seed='one' is not a whole number"),
    ("a bad value", "training: {ema_decay: 2}", UsageError, "training.ema_decay=2.0 must lie between 0 and 1"),
    ("no YAML", "a: [", DataError, "cannot be read as a configuration"),
    ("a list", "[1, 2]", DataError, "is not a configuration; give"),
    ("nothing to interpolate", "seed: ${nope}", DataError, "Interpolation key 'nope' not found"),
    ("code", "hydra: {_target_: os.system}", DataError, "does not know the option hydra"),
]


@pytest.mark.parametrize(
    ("text", "kind", "message"), [case[1:] for case in WRONG_FILES], ids=[c[0] for c in WRONG_FILES]
)
def test_what_is_wrong_with_a_file_is_said_of_the_file(
    tmp_path: Path, text: str, kind: type[NMTError], message: str
) -> None:
    file = write(tmp_path / "wrong.yaml", text)
    with pytest.raises(kind, match=message) as caught:
        composition("train", "--config", file)
    assert file in str(caught.value) and isinstance(caught.value, kind)


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("generate", "to use the model of the run, omit --config and give --path {folder}"),
        ("average_checkpoints", "to use the model of the run, omit --config and give --inputs {folder}"),
        ("preprocess", "use it with nmt-train, or give the output of nmt-preprocess --cfg job"),
        ("score", "use it with nmt-train, or give the output of nmt-score --cfg job"),
        ("shortlist", "use it with nmt-train, or give the output of nmt-shortlist --cfg job"),
    ],
)
def test_the_file_of_a_training_run_is_known_as_such_by_other_commands(
    run_file: str, command: str, advice: str
) -> None:
    program = program_of(command)
    with pytest.raises(UsageError) as caught:
        composition(command, "--config", run_file)
    expected = advice.format(folder=Path(run_file).parent)
    assert str(caught.value) == f"{run_file} is a configuration of nmt-train, not of {program}; {expected}"


def test_a_training_file_under_another_name_does_not_tell_where_the_run_is(run_file: str, tmp_path: Path) -> None:
    file = write(tmp_path / "mine.yaml", Path(run_file).read_text())
    with pytest.raises(UsageError, match="omit --config and give --path RUN$"):
        composition("generate", "--config", file)


def test_a_misspelt_option_is_not_taken_for_one_of_another_command(tmp_path: Path) -> None:
    file = write(tmp_path / "file.yaml", "tokenize: {name: words}")  # nmt-score has that one
    with pytest.raises(DataError, match="does not know the option tokenize .did you mean 'tokenizer'"):
        composition("preprocess", "--config", file)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    for named in (tmp_path, tmp_path / "no.yaml"):
        with pytest.raises(MissingInputError, match=f"--config {named}: {tmp_path}/.* does not exist"):
            composition("train", "--config", str(named))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--config"], "--config needs a value"),
        (["--config", "--lr", "1"], "--config needs a value"),
        (["--config", "a", "--config=b"], "--config is given 2 times"),
        (["--confg", "a"], "unknown flag --confg .did you mean '--config'"),
    ],
)
def test_a_wrong_use_of_the_flag_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        composition("train", *argv)


def test_a_file_and_another_primary_configuration_exclude_each_other(run_file: str) -> None:
    with pytest.raises(UsageError, match="--config .* and --config-name mine exclude each other"):
        base_of(TrainConfig, rewrite(["--config-name", "mine"], grammar_of(TrainConfig)), ConfigFile.read(run_file))


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Makes what looks like a checkpoint, of a model that was validated with this search."""

    def make(search: Any, name: str = "model") -> str:
        folder = tmp_path / name
        folder.mkdir()
        write(folder / "manifest.json", "{}")
        write(
            folder / "config.yaml", yaml.safe_dump({"search": search if isinstance(search, dict) else to_plain(search)})
        )
        return str(folder)

    return make


BEAM = BeamConfig(beam_size=4, lenpen=0.9)
SCORING = ["--score-reference", "--input-format", "tsv", "--format", "jsonl"]


@pytest.mark.parametrize(
    ("stored", "arguments", "expected"),
    [
        (BEAM, [], BEAM),
        (BEAM, ["--beam", "7"], BeamConfig(beam_size=7, lenpen=0.9)),
        (BEAM, ["search.lenpen=0.1", "--min-len", "2"], BeamConfig(beam_size=4, lenpen=0.1, min_len=2)),
        (BEAM, ["--search", "beam"], BEAM),
        (BEAM, ["--search", "greedy"], GreedyConfig()),
        (BEAM, ["--sampling"], SamplingConfig()),
        (BEAM, ["+search=diverse_beam", "--beam", "10"], DiverseBeamConfig(beam_size=10)),
        (GreedyConfig(max_len_b=9), ["--min-len", "2"], GreedyConfig(max_len_b=9, min_len=2)),
        (GreedyConfig(max_len_b=9), ["--beam", "3"], BeamConfig(beam_size=3)),
        (SamplingConfig(topk=7), ["--sampling-topp", "0.5"], SamplingConfig(topk=7, topp=0.5)),
        (BeamConfig(coverage_penalty=0.2, lenpen=0.9), SCORING, BeamConfig(lenpen=0.9)),
        (None, [], BeamConfig()),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["model on the command line", "model known after composing"])
def test_a_model_is_translated_with_as_it_was_validated_unless_the_user_says_otherwise(
    make_model: MakeModel,
    monkeypatch: pytest.MonkeyPatch,
    stored: Any,
    arguments: list[str],
    expected: Any,
    known: bool,
) -> None:
    path = make_model(stored)
    monkeypatch.setenv("MODEL", path)
    named = ["--path", path] if known else ["path=${oc.env:MODEL}"]
    assert configuration("generate", *named, *arguments).search == expected


def test_only_what_the_user_did_not_ask_for_is_told(make_model: MakeModel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    path = make_model(BEAM)
    for arguments, told in (
        ([], ["searching as the model was validated: beam, beam_size=4, lenpen=0.9"]),
        (["--lenpen", "1"], ["searching as the model was validated: beam, beam_size=4"]),
        (["--beam", "5", "--lenpen", "1"], []),
        (["--search", "greedy"], []),
        (["--cfg", "job"], []),
    ):
        caplog.clear()
        composition("generate", "--path", path, *arguments)
        assert caplog.messages == told


def test_a_search_by_default_is_nothing_to_tell(make_model: MakeModel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    composition("generate", "--path", make_model(BeamConfig()))
    assert caplog.messages == []


def test_the_first_model_of_an_ensemble_decides(make_model: MakeModel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    paths = [make_model(search, str(number)) for number, search in enumerate((BEAM, GreedyConfig(), BEAM))]
    assert configuration("generate", "--path", f"{paths[0]}:{paths[1]}").search == BEAM
    assert f"validated with different searches; using the search of {paths[0]}/config.yaml" in caplog.text
    caplog.clear()
    assert configuration("generate", "--path", f"{paths[0]}:{paths[2]}").search == BEAM
    assert "different" not in caplog.text


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"name": "of_a_plugin"}, "config.yaml: unknown search 'of_a_plugin'.*--user-dir PATH; or .*--search beam"),
        ({"name": "beam", "wings": 2}, "config.yaml: .*does not know the option search.wings.*--search beam"),
        ({"name": "beam", "beam_size": 0}, "config.yaml: search.beam_size=0 must be.*--search beam"),
    ],
)
def test_a_stored_search_that_cannot_be_had_is_refused_unless_another_is_chosen(
    make_model: MakeModel, stored: dict[str, Any], message: str
) -> None:
    path = make_model(stored)
    with pytest.raises(NMTError, match=message):
        composition("generate", "--path", path)
    assert configuration("generate", "--path", path, "--search", "greedy").search == GreedyConfig()


def test_a_model_that_is_not_there_is_left_to_who_loads_it(tmp_path: Path) -> None:
    assert configuration("generate", "--path", str(tmp_path / "none")).search == BeamConfig()


def test_the_file_of_a_translation_has_its_own_search(make_model: MakeModel, tmp_path: Path) -> None:
    path = make_model(BEAM)
    file = write(tmp_path / "mine.yaml", f"path: {path}\nsearch: {{name: greedy}}\n")
    assert configuration("generate", "--config", file).search == GreedyConfig()
    assert configuration("generate", "--config", write(tmp_path / "mine.yaml", f"path: {path}\n")).search == BEAM


@pytest.mark.parametrize(
    ("tree", "folder"),
    [
        ({"checkpoint": {"save_dir": "runs/a"}}, "runs/a"),
        ({"checkpoint": {}}, "checkpoints"),
        ({}, "checkpoints"),
        ({"checkpoint": {"save_dir": None}}, None),
        ({"checkpoint": 3}, None),
    ],
    ids=str,
)
def test_the_run_folder_of_a_file_is_known_before_the_file_is_checked(
    tree: dict[str, object], folder: str | None
) -> None:
    assert ConfigFile(Path("run.yaml"), tree).save_dir == folder
