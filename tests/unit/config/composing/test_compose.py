"""Every preset, every schema and every flag composes, and survives being stored as a plain tree."""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.config.composing.composition import find_option
from nmt.config.composing.presets import component_names, default_presets, preset_names
from nmt.config.option import Flag, alternatives, choices_of, flags_of, groups_of, options_of
from nmt.config.plain import from_plain, to_plain
from nmt.optim.config import NAMES_OF_EARLIER_RUNS
from nmt.registry import registry_for
from nmt.search.config import LengthPenalty
from nmt_cli.command_line.argv import rewrite
from nmt_cli.command_line.flags import ADVICE, ALIASES, grammar_of
from nmt_cli.command_line.programs import COMMANDS

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
USERS = {
    "tokenizer": "preprocess",
    "method": "monolingual",
}  # the command that a group belongs to, unless it is nmt-train


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
    for name in component_names(role):
        config = composed(USERS.get(role, "train"), f"{role}={name}")
        assert getattr(config, role) == registry_for(role).config_class(name)()
        assert from_plain(type(config), to_plain(config), origin="here") == config


@pytest.mark.parametrize("command", COMMANDS)
def test_default_presets_exist(command: str, commands: dict[str, type]) -> None:
    for group, choice in default_presets(commands[command]).items():
        assert choice is None or choice in [*preset_names(group), *component_names(group)]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_sets_its_key_and_nothing_else(
    unchecked: Callable[..., dict[str, Any]], commands: dict[str, type], command: str
) -> None:
    """Of the command, and of each component of its groups, some at a time."""
    config_class = commands[command]
    groups = groups_of(config_class)
    rules = grammar_of(config_class)
    flags = [flag for flag in flags_of(config_class) if flag.key.partition(".")[0] not in groups]
    for names in itertools.zip_longest(*map(component_names, groups.values())) if groups else [()]:
        chosen = {group: name for group, name in zip(groups, names) if name is not None}
        for group, name in chosen.items():
            of_component = flags_of(registry_for(groups[group]).config_class(name))
            flags += [dataclasses.replace(flag, key=f"{group}.{flag.key}") for flag in of_component]
        assert {flag.key for flag in flags} <= {option.key for option in options_of(config_class)}
        choices = [f"{group}={name}" for group, name in chosen.items()]
        before = unchecked(command, *choices)
        tree = {group: {"name": name} for group, name in chosen.items()}
        given = {flag.key: another(hint_of(config_class, flag.key, tree), before[flag.key]) for flag in flags}
        line = rewrite([typed(flag, given) for flag in flags], rules)
        after = unchecked(command, *choices, *line.overrides)
        assert {key: value for key, value in after.items() if value != before[key]} == given
        flags = []  # those of the command once


def hint_of(config_class: type, key: str, tree: dict[str, Any]) -> Any:
    option = find_option(config_class, key, tree)
    assert option is not None
    return option.hint


def another(hint: Any, value: Any) -> Any:
    """A plain value that the option does not have yet."""
    kinds = alternatives(hint)
    if names := choices_of(hint):
        return next(name for name in names if name != value)
    if isinstance(value, list) or any(typing.get_origin(kind) is list for kind in kinds):
        (inner,) = {inner for kind in kinds for inner in typing.get_args(kind)}
        return [*(value or []), {float: 0.5, int: 9}.get(inner, "x")]
    if bool in kinds:
        return not value
    if str in kinds:
        return f"{value}x"
    return (value or 0) + (0.5 if float in kinds else 1)


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


@pytest.mark.parametrize(("recipe", "tokenizer"), [("multi30k_fast", "13a"), ("multi30k_record", "none")])
def test_the_recipes_of_raw_and_tokenized_text_show_translations_and_bleu(
    composed: Compose, recipe: str, tokenizer: str
) -> None:
    """A tokenized text is scored as it is."""
    validation = composed("train", f"recipe={recipe}").validation
    assert (validation.metrics, validation.tokenize) == (["bleu"], tokenizer) and validation.samples > 0


@pytest.mark.parametrize(
    ("recipe", "names"), [("multi30k_fast", None), ("multi30k_record", NAMES_OF_EARLIER_RUNS)], ids=str
)
def test_a_recipe_chooses_the_matrices_of_muon_as_its_scores_were_measured(
    composed: Compose, recipe: str, names: list[str] | None
) -> None:
    assert composed("train", f"recipe={recipe}").optimizer.adamw_names == names


@pytest.mark.parametrize(("recipe", "lenpen"), [("multi30k_fast", 1.2), ("multi30k_record", 1.4)])
def test_a_recipe_takes_the_length_penalty_that_validation_chose(composed: Compose, recipe: str, lenpen: float) -> None:
    """By the mean BLEU of validation, see "Length penalty" in benchmarks/history/multi30k.md: the test sets, where
    1.0 is better for German, chose nothing."""
    search = composed("train", f"recipe={recipe}").search
    assert (search.beam_size, search.length_penalty, search.lenpen) == (5, LengthPenalty.power, lenpen)


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
