"""The page behind ``--help`` says all that there is, in readable lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package registers its components
from nmt.config.composing import presets
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import chosen_presets
from nmt.config.composing.first_screens import FIRST_SCREENS
from nmt.config.composing.help import ALL, help_page
from nmt.config.composing.presets import RECIPES, component_names, default_presets, preset_names, refuse_clashes
from nmt.config.composing.programs import program_of
from nmt.config.option import Flag, FlagKind, groups_of, options_of
from nmt.errors import UsageError
from nmt.registry import registry_for
from nmt_cli.command_line.argv import rewrite
from nmt_cli.command_line.flags import grammar_of
from nmt_cli.command_line.programs import COMMANDS, options_class

CHOICES = [
    (command, f"{group}={name}")
    for command in COMMANDS
    for group, default in default_presets(options_class(command)).items()
    for name in (
        ["multi30k_tiny", "vaswani_base"]
        if group == "recipe"
        else ["tagged"]
        if group in RECIPES
        else component_names(group)
    )
]


def entry_of(flag: Flag, page: str) -> str:
    """The line of a flag with those that it goes on in, as one line; empty if there is none."""
    name = rf"--(?:\[no-\])?{flag.name[2:]}" if flag.name.startswith("--") else re.escape(flag.name)
    found = re.search(rf"^  {name}(?=[ {{]|(?<==)\w|$).*(\n {{10,}}.*)*", page, re.MULTILINE)
    return " ".join(found[0].split()) if found else ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_the_command_itself_has_a_line_with_its_meaning(
    commands: dict[str, type], command: str
) -> None:
    page = help_page(commands[command], topic=ALL)
    groups = groups_of(commands[command])
    for flag in options_of(commands[command]):
        if flag.key.partition(".")[0] not in groups or flag.key in groups:
            assert " ".join(flag.help.split()) in entry_of(flag, page), flag.name


@pytest.mark.parametrize(("command", "choice"), CHOICES, ids=[" ".join(pair) for pair in CHOICES])
def test_every_option_of_a_component_that_is_chosen_has_a_line_with_its_meaning(
    commands: dict[str, type], command: str, choice: str
) -> None:
    page = help_page(commands[command], assignments=read([choice]), topic=ALL)
    presets = chosen_presets(commands[command], read([choice]))
    for group in groups_of(commands[command]):
        component = presets.component(group)
        assert component is not None
        for flag in options_of(registry_for(group).config_class(component), f"{group}."):
            assert " ".join(flag.help.split()) in entry_of(flag, page), flag.name


@pytest.mark.parametrize(
    ("choice", "flag", "default"),
    [
        ("model=transformer_base", "--dropout", "default: 0.1)"),
        ("model=lstm_luong", "--dropout", "default: 0.2)"),
        ("model=lstm_luong", "model.hidden_size=", "default: 1000)"),
        ("recipe=multi30k_tiny", "--dropout", "default: 0.3)"),
        ("recipe=multi30k_tiny", "--lenpen", "default: 1.0)"),
        ("recipe=multi30k_tiny", "--keep-last-epochs", "default: 10)"),
    ],
)
def test_the_defaults_shown_are_those_of_the_preset_and_the_recipe_chosen(
    commands: dict[str, type], choice: str, flag: str, default: str
) -> None:
    page = help_page(commands["train"], assignments=read([choice]), topic=ALL)
    assert entry_of(Flag(flag, "", FlagKind.plain, "", None), page).endswith(default)


def test_a_recipe_chooses_and_the_command_line_counts_more(commands: dict[str, type]) -> None:
    presets = chosen_presets(commands["train"], read(["recipe=vaswani_base", "optimizer=sgd"]))
    assert (presets.choices["scheduler"], presets.choices["optimizer"]) == ("noam", "sgd")
    assert (presets.value("search.beam_size", 0), presets.value("batching.max_tokens", 0)) == (4, 3125)


def test_the_first_value_is_shown_in_a_sweep_over_presets(commands: dict[str, type]) -> None:
    presets = chosen_presets(commands["train"], read(["model=lstm_luong,lstm_tiny"]))
    assert presets.choices["model"] == "lstm_luong"


def test_a_preset_in_a_folder_of_the_user_is_found(commands: dict[str, type], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [transformer_big]\nd_ff: 7\n")
    presets = chosen_presets(commands["train"], read(["model=mine"]), [tmp_path])
    assert presets.component("model") == "transformer"
    assert (presets.value("model.d_ff", 0), presets.value("model.d_model", 0)) == (7, 1024)


def test_an_unknown_preset_is_refused_on_the_way_to_help(commands: dict[str, type]) -> None:
    with pytest.raises(UsageError, match=r"unknown model 'lstm_luog' \(did you mean 'lstm_luong'\?\)"):
        help_page(commands["train"], assignments=read(["model=lstm_luog"]))


def test_options_of_what_is_not_chosen_are_left_out_and_the_page_says_how_to_see_them(
    commands: dict[str, type],
) -> None:
    page = help_page(commands["train"], topic=ALL)
    assert "model.d_ff=" in page and "model.cell=" not in page
    for group in groups_of(commands["train"]):
        assert f"nmt-train {group}=NAME --help {group}" in " ".join(page.split())


@pytest.mark.parametrize(("width", "most"), [("80", 45), ("100", 40)])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_page_fits_a_screen_and_has_examples_before_options(
    commands: dict[str, type], command: str, width: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    screen = help_page(commands[command])
    assert 15 <= screen.count("\n") + 1 <= most
    parts = [f"{command.strip('_').replace('_', '-')}: ", "usage: nmt-", "\nexamples\n", "\noptions of most runs\n"]
    places = [screen.index(part) for part in [*parts, "\nmore\n", "--help all", "--help TOPIC"]]
    assert places == sorted(places)
    assert all(entry_of(Flag(name, "", FlagKind.plain, "", None), screen) for name in everyday(command))
    assert not [name for name in preset_names("model") if name in screen.replace("transformer_base", "")][1:]


def everyday(command: str) -> list[str]:
    return FIRST_SCREENS[command].everyday.split()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_screen_s_options_are_options_of_the_command(commands: dict[str, type], command: str) -> None:
    known = {flag.name for flag in options_of(commands[command])}
    chosen = chosen_presets(commands[command], [])
    for group in groups_of(commands[command]):
        component = chosen.component(group)
        known |= {flag.name for flag in options_of(registry_for(group).config_class(component or ""), f"{group}.")}
    assert set(everyday(command)) <= known and len(set(everyday(command))) == len(everyday(command))


def test_an_option_that_the_chosen_component_lacks_is_left_out_of_the_first_screen(commands: dict[str, type]) -> None:
    page = help_page(commands["train"], assignments=read(["scheduler=halving"]))
    assert "--warmup-updates" not in page and "  --lr N " in page


@pytest.mark.parametrize("command", COMMANDS)
def test_each_topic_has_a_page_which_is_a_part_of_the_whole(commands: dict[str, type], command: str) -> None:
    whole = help_page(commands[command], topic=ALL)
    (listed,) = re.findall(r"--help TOPIC(.*?); or a flag", " ".join(help_page(commands[command]).split()))
    topics = listed.split(", ")
    assert len(topics) >= 2
    for topic in map(str.strip, topics):
        for block in help_page(commands[command], topic=topic).split("\n\n"):
            if not block.startswith("presets"):  # a group's page has the presets of this group alone
                assert block in whole, topic


@pytest.mark.parametrize("name", ["lr", "--lr", "optimizer.lr"])
def test_a_flag_or_a_key_is_a_topic(commands: dict[str, type], name: str) -> None:
    page = help_page(commands["train"], topic=name)
    assert page.splitlines()[0].startswith("optimizer=adam") and "\n  --lr N " in page and "--adam" not in page


@pytest.mark.parametrize(
    ("word", "topic"),
    [("arch", "model"), ("--arch", "model"), ("-a", "model"), ("lr-scheduler", "scheduler"), ("steps", "--max-update")],
)
def test_another_name_of_a_group_or_an_option_is_the_same_topic(
    commands: dict[str, type], word: str, topic: str
) -> None:
    named = rewrite(["--help", word], grammar_of(commands["train"])).hydra["--help"]
    assert help_page(commands["train"], topic=named) == help_page(commands["train"], topic=topic)


def test_an_option_of_a_component_that_is_not_chosen_is_a_topic(commands: dict[str, type]) -> None:
    page = help_page(commands["train"], topic="halve-after")
    assert page.startswith("scheduler=halving ") and "\n  --halve-after N " in page


def test_a_section_is_a_topic_even_if_a_file_has_its_name(
    commands: dict[str, type], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "all").touch()
    monkeypatch.chdir(tmp_path)
    for topic in ("model", "all"):
        assert rewrite(["--help", topic], grammar_of(commands["train"])).hydra["--help"] == topic


def test_an_unknown_topic_is_refused_with_the_topics(commands: dict[str, type]) -> None:
    with pytest.raises(
        UsageError, match=r"--help modle: unknown topic \(did you mean 'model'\?\); topics are all, opt"
    ):
        help_page(commands["train"], topic="modle")


@pytest.mark.parametrize(
    ("words", "topic", "overrides"),
    [
        (["--help"], "", ()),
        (["--help", "model"], "model", ()),
        (["--help=model"], "model", ()),
        (["-h", "--arch", "lstm_luong"], "", ("model=lstm_luong",)),
        (["--help", "model=lstm_luong"], "", ("model=lstm_luong",)),
        (["model=lstm_luong", "--help", "model"], "model", ("model=lstm_luong",)),
        (["--help", "tests"], "", ("data=['tests']",)),
        (["--help", "data-bin/none"], "", ("data=['data-bin/none']",)),
        (["--help", "-"], "", ("data=['-']",)),
        (["--help", "--lr"], "--lr", ()),
        (["--help", "--model.d-model"], "--model.d-model", ()),
        (["--help", "--fp16"], "--precision", ()),
        (["--help", "--lr", "0.1"], "", ("optimizer.lr=0.1",)),
    ],
)
def test_the_word_after_help_is_its_topic_unless_it_is_an_option_or_a_file(
    commands: dict[str, type], words: list[str], topic: str, overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[4])
    line = rewrite(words, grammar_of(commands["train"]))
    assert (line.hydra["--help"], line.overrides) == (topic, overrides)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_preset_is_listed_after_the_options_and_the_default_is_marked(
    commands: dict[str, type], command: str
) -> None:
    options, _, listed = help_page(commands[command], topic=ALL).partition("\npresets (")
    assert bool(listed) == bool(default_presets(commands[command]))
    for group, default in default_presets(commands[command]).items():
        for name in [*preset_names(group), *component_names(group)]:
            assert (f"{name}*" if name == default else name) in listed


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_compose(
    commands: dict[str, type], composed: Callable[..., object], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = help_page(commands[command], topic=ALL).partition("\nexamples\n")[2].partition("\n\n")[0]
    lines = [line for line in page.replace("\\\n", " ").splitlines() if not line.startswith("  # ")]
    assert 1 <= len(lines) <= 4
    for program, *arguments in map(shlex.split, lines):
        assert program == program_of(command)
        line = rewrite(arguments, grammar_of(commands[command]))
        overrides = [
            override if override.startswith("data=") else override.split(",")[0] for override in line.overrides
        ]
        whole = [override for override in line.overrides if "[" in override]
        assert composed(command, *(whole + [one for one in overrides if "[" not in one]))


@pytest.mark.parametrize("width", ["80", "120"])
@pytest.mark.parametrize("command", COMMANDS)
def test_lines_fit_a_terminal(
    commands: dict[str, type], command: str, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    longest = max(map(len, help_page(commands[command], topic=ALL).splitlines()))
    assert int(width) - 15 < longest <= int(width)


@pytest.mark.parametrize(
    ("preset", "message"),
    [("transformer_base", "already a preset of nmt"), ("transformer", "is a model itself")],
)
def test_presets_of_plugins_must_not_hide_or_be_hidden(tmp_path: Path, preset: str, message: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / f"{preset}.yaml").write_text("dropout: 0.5\n")
    with pytest.raises(UsageError, match=message):
        refuse_clashes([tmp_path])


def test_presets_of_nmt_must_not_have_the_name_of_a_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "linear.yaml").write_text("end: 0.5\n")
    monkeypatch.setattr(presets, "CONF", tmp_path)
    with pytest.raises(
        UsageError, match=r"'linear' is a scheduler itself; rename its preset, for example to linear_base"
    ):
        refuse_clashes([])


def test_the_help_of_translating_says_that_the_model_s_validation_sets_the_search(commands: dict[str, type]) -> None:
    screen, page = help_page(commands["generate"]), help_page(commands["generate"], topic=ALL)
    search = help_page(commands["generate"], topic="search")
    for name in ("--beam", "--lenpen"):
        assert entry_of(Flag(name, "", FlagKind.plain, "", None), screen).endswith("(default: as in validation)")
    assert entry_of(Flag("--search", "", FlagKind.plain, "", None), page).endswith("(default: as in validation)")
    assert "defaults of a model without a stored search" in " ".join(search.partition("\n  --")[0].split())
    assert "as in validation" not in help_page(commands["train"], topic=ALL)


def test_a_value_that_may_be_left_out_stands_in_brackets(commands: dict[str, type]) -> None:
    assert "--print-alignment [X]" in help_page(commands["generate"], topic=ALL)


@pytest.mark.parametrize(
    ("command", "bare"),
    [("train", "[CORPUS FOLDER ...]"), ("compare", "[SYSTEM ...]"), ("visualize", "[RUN FOLDER ...]"), ("serve", "")],
)
def test_the_usage_says_what_bare_arguments_are(commands: dict[str, type], command: str, bare: str) -> None:
    (usage,) = re.findall(r"^usage: (.*)$", help_page(commands[command]), flags=re.MULTILINE)
    assert usage.startswith(f"{program_of(command)} {bare} [--flag".replace("  ", " "))
