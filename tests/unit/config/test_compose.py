"""Every preset, every schema and every flag composes, and survives being stored as a plain tree."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import BooleanNode, DictConfig, EnumNode, FloatNode, ListConfig, Node, OmegaConf, StringNode

import nmt
from nmt.config.option import Flag, flags_of, groups_of, options_of
from nmt.config.plain import from_plain, to_plain
from nmt.config.presets import COMMANDS, default_choices, preset_names, schema_names
from nmt.registry import registry_for
from nmt_cli.argv import rewrite
from nmt_cli.flags import ADVICE, ALIASES, grammar

Compose = Callable[..., Any]
CONF = Path(nmt.__file__).parent / "conf"
PRESETS = [(file.parent.name, file.stem) for file in sorted(CONF.glob("*/*.yaml"))]
OTHERWISE_CALLED = {
    "--from": "from_format",
    "--alignment-lambda": "criterion.alignment_weight",
    "--arch": "model",
    "--async-checkpoints": "checkpoint.asynchronous",
    "--beam": "search.beam_size",
    "--best-checkpoint-metric": "validation.best_metric",
    "--device": "device.name",
    "--forbid-unk": "search.forbid_unknown",
    "--halve-after": "scheduler.start",
    "--halve-by": "scheduler.unit",
    "--hops": "model.num_hops",
    "--muon-adamw": "optimizer.adamw_names",
    "--search": "search.name",  # of nmt-serve; elsewhere it chooses a component
    "--rdrop-alpha": "criterion.divergence_weight",
    "--share-decoder-input-output-embed": "model.share_decoder_embeddings",
}
USERS = {"tokenizer": "preprocess"}  # the command that a group belongs to, unless it is nmt-train


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_composes_to_its_dataclass(composed: Compose, commands: dict[str, type], command: str) -> None:
    assert type(composed(command)) is commands[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_defaults_of_a_command_are_those_of_its_dataclass(
    composed: Compose, commands: dict[str, type], command: str
) -> None:
    """One default for each option: the primary YAML adds choices of groups and nothing else."""
    config = composed(command)
    for field in groups_of(commands[command]):
        setattr(config, field, None)
    assert config == commands[command]()


@pytest.mark.slow
@pytest.mark.parametrize(("group", "name"), PRESETS)
def test_every_preset_composes_and_round_trips(composed: Compose, group: str, name: str) -> None:
    config = composed(USERS.get(group, "train"), f"{group}={name}")
    assert from_plain(type(config), to_plain(config), origin="here") == config


@pytest.mark.slow
@pytest.mark.parametrize("role", ["model", "criterion", "optimizer", "scheduler", "search", "tokenizer"])
def test_every_schema_is_a_choice_of_its_group(composed: Compose, role: str) -> None:
    for name in schema_names(role):
        config = composed(USERS.get(role, "train"), f"{role}={name}")
        assert getattr(config, role) == registry_for(role).config_class(name)()
        assert from_plain(type(config), to_plain(config), origin="here") == config


@pytest.mark.parametrize("command", COMMANDS)
def test_default_choices_exist(command: str, composed: Compose) -> None:
    for group, choice in default_choices(command).items():
        assert choice is None or choice in [*preset_names(group), *schema_names(group)]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_sets_its_key_and_nothing_else(
    unchecked: Callable[..., DictConfig], commands: dict[str, type], command: str
) -> None:
    """Of the command, and of each component of its groups, some at a time."""
    config_class = commands[command]
    groups = groups_of(config_class)
    rules = grammar(config_class, default_choices(command))
    flags = [flag for flag in flags_of(config_class) if flag.key.partition(".")[0] not in groups]
    for names in itertools.zip_longest(*map(schema_names, groups.values())) if groups else [()]:
        chosen = {group: name for group, name in zip(groups, names) if name is not None}
        for group, name in chosen.items():
            of_component = flags_of(registry_for(groups[group]).config_class(name))
            flags += [dataclasses.replace(flag, key=f"{group}.{flag.key}") for flag in of_component]
        assert {flag.key for flag in flags} <= {option.key for option in options_of(config_class)}
        choices = [f"{group}={name}" for group, name in chosen.items()]
        before = options_in(unchecked(command, *choices))
        given = {flag.key: another(before[flag.key]) for flag in flags}
        after = options_in(unchecked(command, *choices, *rewrite([typed(flag, given) for flag in flags], rules).argv))
        assert {key: value for key, node in after.items() if (value := plain(node)) != plain(before[key])} == given
        flags = []  # those of the command once


def options_in(config: DictConfig, prefix: str = "") -> dict[str, Node]:
    """By key."""
    found: dict[str, Any] = {}
    for name in map(str, config):
        node = config._get_node(name)
        is_section = isinstance(node, DictConfig) and not node._is_none()
        found |= options_in(node, f"{prefix}{name}.") if is_section else {f"{prefix}{name}": node}  # type: ignore
    return found


def plain(node: Node) -> Any:
    return OmegaConf.to_container(OmegaConf.create([node]), enum_to_str=True)[0]  # type: ignore[index]


def another(node: Node) -> Any:
    """A value that the option does not have yet."""
    value = plain(node)
    if isinstance(node, ListConfig):
        return [*value, {float: 0.5, int: 9}.get(node._metadata.element_type, "x")]
    if isinstance(node, EnumNode):
        return next(name for name in node.enum_type.__members__ if name != value)
    if isinstance(node, BooleanNode):
        return not value
    if isinstance(node, StringNode):
        return f"{value}x"
    return (value or 0) + (0.5 if isinstance(node, FloatNode) else 1)


def typed(flag: Flag, given: dict[str, Any]) -> str:
    value = given[flag.key]
    return f"{flag.name}={','.join(map(str, value)) if isinstance(value, list) else value}"


def test_a_flag_is_called_like_its_key(commands: dict[str, type]) -> None:
    """Or as users know it."""
    assert {
        flag.name: flag.key
        for config_class in commands.values()
        for flag in flags_of(config_class)
        if flag.key.rpartition(".")[2] not in flag.name.replace("-", "_")
    } == OTHERWISE_CALLED


def test_a_recipe_overrides_the_defaults_and_the_command_line_overrides_the_recipe(composed: Compose) -> None:
    by_recipe = composed("train", "recipe=vaswani_big")
    assert (by_recipe.model.d_model, by_recipe.scheduler.warmup_updates) == (1024, 4000)
    by_hand = composed("train", "recipe=vaswani_big", "model=transformer_tiny", "scheduler.warmup_updates=7")
    assert (by_hand.model.d_model, by_hand.scheduler.warmup_updates) == (128, 7)
    assert by_hand.batching == by_recipe.batching


@pytest.mark.parametrize(
    ("recipe", "width", "dropout", "updates", "averaged"),
    [
        ("vaswani_base", 512, 0.1, 100_000, 5),
        ("vaswani_big", 1024, 0.3, 300_000, 20),
        ("vaswani_big_en_fr", 1024, 0.1, 300_000, 20),
    ],
)
def test_the_papers_recipes_make_the_papers_updates(
    composed: Compose, recipe: str, width: int, dropout: float, updates: int, averaged: int
) -> None:
    found = composed("train", f"recipe={recipe}")
    assert (found.model.d_model, found.model.dropout, found.training.max_update) == (width, dropout, updates)
    assert found.checkpoint.keep_interval_updates == averaged and found.checkpoint.save_interval_minutes == 10
    made = {n: n * found.batching.accumulation(n) * found.batching.largest for n in (1, 2, 4, 8)}
    assert set(made.values()) == {25_000} and not found.batching.count_padding


def test_aliases_lead_to_flags_and_advice_is_for_flags_we_lack(commands: dict[str, type], composed: Compose) -> None:
    ours = {flag.name for config_class in commands.values() for flag in flags_of(config_class)}
    assert {words[0] for words in ALIASES.values()} <= ours
    assert ours.isdisjoint(ADVICE)
