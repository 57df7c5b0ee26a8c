"""The page behind ``--help`` says all that there is, in readable lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmt.config.help import help_page
from nmt.config.option import flags_of, groups_of, options_of
from nmt.config.presets import default_choices, preset_names, schema_names
from nmt.config.publish import publish
from nmt.errors import UsageError
from nmt.registry import registry_for

COMMAND_NAMES = ("preprocess", "train", "average_checkpoints", "generate", "shortlist", "score")


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_every_flag_has_a_line_with_its_meaning(commands: dict[str, type], command: str) -> None:
    page = help_page(command, commands[command])
    for flag in flags_of(commands[command]):
        entry = re.search(rf"^  --(no-|\[no-\])?{flag.name[2:]}(?= |$).*(\n {{10,}}.*)*", page, re.MULTILINE)
        assert entry, flag.name
        assert " ".join(flag.help.split()) in " ".join(entry[0].split()), flag.name


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_every_preset_is_listed_and_the_default_is_marked(commands: dict[str, type], command: str) -> None:
    page = help_page(command, commands[command])
    for group, default in default_choices(command).items():
        for name in [*preset_names(group), *schema_names(group)]:
            assert (f"{name}*" if name == default else name) in page


def test_components_that_mean_another_thing_by_a_flag_are_named(commands: dict[str, type]) -> None:
    page = " ".join(help_page("train", commands["train"]).split())
    assert "L2 penalty, added to the gradient (adam, adam_then_sgd, nag, rmsprop, sgd: 0.0)" in page
    assert "share of a parameter taken off, times the rate (adafactor, lion: 0.0; adamw, muon: 0.01)" in page
    assert "--lr N - peak learning rate; null: 0.0005 (adam, adamw, muon); or " in page
    assert "--[no-]share-all-embeddings differs one matrix" in page
    assert "--[no-]share-decoder-input-output-embed differs one matrix" in page


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_options_without_a_flag_are_shown_by_their_key(commands: dict[str, type], command: str) -> None:
    page, config = help_page(command, commands[command]), commands[command]
    options = {flag.name: flag for flag in options_of(config)}
    for group, role in groups_of(config).items():
        registry = registry_for(role)
        for name in registry.names():
            options |= {flag.name: flag for flag in options_of(registry.config_class(name), f"{group}.")}
    without_flag = [name for name in options if name.endswith("=")]
    assert all(re.search(rf"^  {re.escape(name)}", page, re.MULTILINE) for name in without_flag)
    assert ("model.d_ff=" in without_flag and "  model.peeky=true|false " in page) == (command == "train")


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_lines_fit_a_terminal(commands: dict[str, type], command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert max(map(len, help_page(command, commands[command]).splitlines())) <= 110


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
    pointing = [command for command in COMMAND_NAMES if "docs/models.md" in help_page(command, commands[command])]
    assert pointing == ["train"]


def test_a_value_that_may_be_left_out_stands_in_brackets(commands: dict[str, type]) -> None:
    assert "--print-alignment [X]" in help_page("generate", commands["generate"])
