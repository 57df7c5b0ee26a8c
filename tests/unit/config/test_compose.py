"""Every preset, every schema and every flag composes, and survives being stored as a plain tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.config.option import Flag, FlagKind, flags_of, groups_of
from nmt.config.plain import from_plain, to_plain
from nmt.config.presets import default_choices, preset_names, schema_names
from nmt.registry import registry_for
from nmt_cli.argv import rewrite
from nmt_cli.explain import keys_of
from nmt_cli.flags import ADVICE, ALIASES, grammar

Compose = Callable[..., Any]
COMMAND_NAMES = ("preprocess", "train", "average_checkpoints", "generate", "shortlist", "score")
CONF = Path(nmt.__file__).parent / "conf"
PRESETS = [(file.parent.name, file.stem) for file in sorted(CONF.glob("*/*.yaml"))]
USERS = {"tokenizer": "preprocess"}  # the command that a group belongs to, unless it is nmt-train


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_every_command_composes_to_its_dataclass(composed: Compose, commands: dict[str, type], command: str) -> None:
    assert type(composed(command)) is commands[command]


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_the_defaults_of_a_command_are_those_of_its_dataclass(
    composed: Compose, commands: dict[str, type], command: str
) -> None:
    """One default for each option: the primary YAML adds choices of groups and nothing else."""
    config = composed(command)
    for field in groups_of(commands[command]):
        setattr(config, field, None)
    assert config == commands[command]()


@pytest.mark.parametrize(("group", "name"), PRESETS)
def test_every_preset_composes_and_round_trips(composed: Compose, group: str, name: str) -> None:
    config = composed(USERS.get(group, "train"), f"{group}={name}")
    assert from_plain(type(config), to_plain(config), origin="here") == config


@pytest.mark.parametrize("role", ["model", "criterion", "optimizer", "scheduler", "search", "tokenizer"])
def test_every_schema_is_a_choice_of_its_group(composed: Compose, role: str) -> None:
    for name in schema_names(role):
        config = composed(USERS.get(role, "train"), f"{role}={name}")
        assert getattr(config, role) == registry_for(role).config_class(name)()
        assert from_plain(type(config), to_plain(config), origin="here") == config


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_default_choices_exist(command: str, composed: Compose) -> None:
    for group, choice in default_choices(command).items():
        assert choice is None or choice in [*preset_names(group), *schema_names(group)]


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_every_flag_stands_for_a_key_and_sets_it(composed: Compose, commands: dict[str, type], command: str) -> None:
    config_class = commands[command]
    own = [flag for flag in flags_of(config_class) if flag.key.partition(".")[0] not in groups_of(config_class)]
    check_flags(composed, command, grammar(config_class, default_choices(command)), own, choices=[])
    for role in groups_of(config_class).values():
        for name in schema_names(role):
            flags = [
                dataclasses.replace(flag, key=f"{role}.{flag.key}")
                for flag in flags_of(registry_for(role).config_class(name))
            ]
            check_flags(composed, command, grammar(config_class, default_choices(command)), flags, [f"{role}={name}"])


def check_flags(composed: Compose, command: str, rules: Any, flags: list[Flag], choices: list[str]) -> None:
    """Each flag with its own default as the value gives the configuration that is composed without it."""
    arguments: list[str] = []
    for flag in flags:
        value = to_plain(flag.default)
        if flag.kind is FlagKind.switch:
            arguments.append(f"{flag.name}={'null' if value is None else str(value).lower()}")
        elif isinstance(value, list) and value:
            arguments.append(f"{flag.name}={','.join(map(str, value))}")
        elif value is not None and not isinstance(value, list):
            arguments.append(f"{flag.name}={value}")
    without = composed(command, *choices)
    assert {flag.key for flag in flags} <= set(keys_of(type(without)))
    assert composed(command, *choices, *rewrite(arguments, rules).argv) == without


def test_a_recipe_overrides_the_defaults_and_the_command_line_overrides_the_recipe(composed: Compose) -> None:
    by_recipe = composed("train", "recipe=vaswani_big")
    assert (by_recipe.model.d_model, by_recipe.scheduler.warmup_updates) == (1024, 4000)
    by_hand = composed("train", "recipe=vaswani_big", "model=transformer_tiny", "scheduler.warmup_updates=7")
    assert (by_hand.model.d_model, by_hand.scheduler.warmup_updates) == (128, 7)
    assert by_hand.batching == by_recipe.batching


def test_aliases_lead_to_flags_and_advice_is_for_flags_we_lack(commands: dict[str, type], composed: Compose) -> None:
    ours = {flag.name for config_class in commands.values() for flag in flags_of(config_class)}
    assert {words[0] for words in ALIASES.values()} <= ours
    assert ours.isdisjoint(ADVICE)
