"""The page behind ``--help`` says all that there is, in readable lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package registers its components
from nmt.config.help import EVERYDAY, help_page
from nmt.config.option import Flag, FlagKind, groups_of, options_of
from nmt.config.presets import COMMANDS, RECIPE, chosen, default_choices, preset_names, program_of, schema_names
from nmt.config.publish import publish
from nmt.errors import UsageError
from nmt.registry import registry_for
from nmt_cli.argv import rewrite
from nmt_cli.flags import grammar

CHOICES = [
    (command, f"{group}={name}")
    for command in COMMANDS
    for group, default in default_choices(command).items()
    for name in (["multi30k_tiny", "vaswani_base"] if group == RECIPE else schema_names(group))
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
    page = help_page(command, commands[command])
    groups = groups_of(commands[command])
    for flag in options_of(commands[command]):
        if flag.key.partition(".")[0] not in groups or flag.key in groups:
            assert " ".join(flag.help.split()) in entry_of(flag, page), flag.name


@pytest.mark.parametrize(("command", "choice"), CHOICES, ids=[" ".join(pair) for pair in CHOICES])
def test_every_option_of_a_component_that_is_chosen_has_a_line_with_its_meaning(
    commands: dict[str, type], command: str, choice: str
) -> None:
    page = help_page(command, commands[command], overrides=[choice])
    for group, component in chosen(command, [choice]).components.items():
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
    page = help_page("train", commands["train"], overrides=[choice])
    assert entry_of(Flag(flag, "", FlagKind.plain, "", None), page).endswith(default)


@pytest.mark.parametrize("preset", preset_names("model")[::5])
def test_a_preset_is_read_as_hydra_composes_it(unchecked: Callable[..., DictConfig], preset: str) -> None:
    composed, read = unchecked("train", f"model={preset}").model, chosen("train", [f"+model='{preset}'"])
    assert read.components["model"] == registry_for("model").name_of(OmegaConf.get_type(composed))
    for key, value in read.values.items():
        have = OmegaConf.select(composed, key.removeprefix("model."))
        assert (have.name if isinstance(have, Enum) else have) == value


def test_a_recipe_chooses_and_what_the_command_line_names_counts_more() -> None:
    read = chosen("train", ["recipe=vaswani_base", "optimizer=sgd"])
    assert (read.presets["scheduler"], read.presets["optimizer"]) == ("noam", "sgd")
    assert (read.values["search.beam_size"], read.values["batching.max_tokens"]) == (4, 3125)


def test_of_a_sweep_over_presets_the_first_is_shown() -> None:
    assert chosen("train", ["model=lstm_luong,lstm_tiny"]).presets["model"] == "lstm_luong"


def test_a_preset_in_a_folder_of_the_users_is_found(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [transformer_big]\nd_ff: 7\n")
    read = chosen("train", ["model=mine"], [tmp_path])
    assert (read.components["model"], read.values["model.d_ff"], read.values["model.d_model"]) == (
        "transformer",
        7,
        1024,
    )


def test_an_unknown_preset_is_refused_on_the_way_to_help(commands: dict[str, type]) -> None:
    with pytest.raises(UsageError, match=r"unknown model 'lstm_luog' \(did you mean 'lstm_luong'\?\)"):
        help_page("train", commands["train"], overrides=["model=lstm_luog"])


def test_options_of_what_is_not_chosen_are_left_out_and_the_page_says_how_to_see_them(
    commands: dict[str, type],
) -> None:
    page = help_page("train", commands["train"])
    assert "model.d_ff=" in page and "model.cell=" not in page
    for group in groups_of(commands["train"]):
        assert f"nmt-train {group}=NAME --help" in " ".join(page.split())


@pytest.mark.parametrize("width", ["80", "120"])
@pytest.mark.parametrize("command", ["preprocess", "train", "generate"])
def test_the_first_screen_tells_the_purpose_the_usage_and_what_most_runs_need(
    commands: dict[str, type], command: str, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    screen = help_page(command, commands[command]).partition("\n\noptions\n")[0]
    assert 20 <= screen.count("\n") + 1 <= 40
    assert all(flag in screen for flag in EVERYDAY[command].split())
    assert "usage: nmt-" in screen and "where to look further" in screen
    assert not [name for name in preset_names("model") if name in screen.replace("transformer_base", "")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_preset_is_listed_after_the_options_and_the_default_is_marked(
    commands: dict[str, type], command: str
) -> None:
    options, _, listed = help_page(command, commands[command]).partition("\npresets (")
    assert bool(listed) == bool(default_choices(command))
    for group, default in default_choices(command).items():
        for name in [*preset_names(group), *schema_names(group)]:
            assert (f"{name}*" if name == default else name) in listed


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_end_the_page_and_compose(
    commands: dict[str, type], unchecked: Callable[..., DictConfig], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = help_page(command, commands[command]).partition("\nexamples\n")[2]
    lines = [line for line in page.replace("\\\n", " ").splitlines() if not line.startswith("  # ")]
    assert 1 <= len(lines) <= 4
    for program, *arguments in map(shlex.split, lines):
        assert program == program_of(command)
        line = rewrite(arguments, grammar(commands[command], default_choices(command)))
        overrides = [
            override if override.startswith("data=") else override.split(",")[0] for override in line.overrides
        ]
        whole = [override for override in line.overrides if "[" in override]
        assert OmegaConf.to_object(unchecked(command, *(whole + [one for one in overrides if "[" not in one])))


@pytest.mark.parametrize("width", ["80", "120"])
@pytest.mark.parametrize("command", COMMANDS)
def test_lines_fit_a_terminal(
    commands: dict[str, type], command: str, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    longest = max(map(len, help_page(command, commands[command]).splitlines()))
    assert int(width) - 15 < longest <= int(width)


@pytest.mark.parametrize(
    ("preset", "message"),
    [("transformer_base", "already a preset of nmt"), ("transformer", "is a model itself")],
)
def test_presets_of_plugins_must_not_hide_or_be_hidden(
    commands: dict[str, type], tmp_path: Path, preset: str, message: str
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / f"{preset}.yaml").write_text("dropout: 0.5\n")
    with pytest.raises(UsageError, match=message):
        publish("train", commands["train"], [tmp_path])


def test_the_page_of_training_alone_says_where_models_are_explained(commands: dict[str, type]) -> None:
    pointing = [command for command in COMMANDS if "docs/models.md" in help_page(command, commands[command])]
    assert pointing == ["train"]


def test_a_value_that_may_be_left_out_stands_in_brackets(commands: dict[str, type]) -> None:
    assert "--print-alignment [X]" in help_page("generate", commands["generate"])


@pytest.mark.parametrize(
    ("command", "bare"),
    [("train", "[CORPUS FOLDER ...]"), ("compare", "[SYSTEM ...]"), ("visualize", "[RUN FOLDER ...]"), ("serve", "")],
)
def test_the_usage_says_what_bare_arguments_are(commands: dict[str, type], command: str, bare: str) -> None:
    (usage,) = re.findall(r"^usage: (.*)$", help_page(command, commands[command]), flags=re.MULTILINE)
    assert usage.startswith(f"{program_of(command)} {bare} [--flag".replace("  ", " "))
