"""What the learning tests rely on: held-out strings are new, and every preset has a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.config.composing.presets import preset_names
from nmt.testing.subjects import load_preset
from tests.learning.learn import LONGEST, SYMBOLS, TASKS, TEST, VALID, make_corpus, make_splits
from tests.learning.recipes import RECIPES, recipe_and_model


@pytest.mark.parametrize("pairs", sorted({recipe.pairs for recipe in RECIPES.values()}))
def test_held_out_strings_are_distinct_and_occur_in_no_other_split(pairs: int) -> None:
    splits = make_splits(pairs)
    assert {name: len(lines) for name, lines in splits.items()} == {"train": pairs, "valid": VALID, "test": TEST}
    train, valid, test = (set(splits[name]) for name in ("train", "valid", "test"))
    assert (len(valid), len(test)) == (VALID, TEST)
    assert not train & valid and not train & test and not valid & test


def test_training_and_test_have_all_lengths_and_symbols() -> None:
    splits = make_splits()
    for lines in (splits["train"], splits["test"]):
        assert {len(line.split()) for line in lines} == set(range(1, LONGEST + 1))
        assert {symbol for line in lines for symbol in line.split()} == set(SYMBOLS)


@pytest.mark.parametrize("task", TASKS)
def test_the_corpus_says_what_the_task_asks_for(task: str, tmp_path: Path) -> None:
    make_corpus(task, tmp_path)
    source, target = ((tmp_path / f"test.{language}").read_text().splitlines() for language in ("src", "tgt"))
    expected = source if task == "copy" else [" ".join(reversed(line.split())) for line in source]
    assert target == expected


def test_every_preset_has_a_recipe() -> None:
    assert sorted(RECIPES) == preset_names("model")


@pytest.mark.parametrize("preset", RECIPES)
def test_a_recipe_changes_sizes_and_dropout_only(preset: str) -> None:
    before, (recipe, after) = load_preset(preset), recipe_and_model(preset)
    for name in recipe.sizes:
        assert _kind(getattr(after, name)) == _kind(getattr(before, name)) != ("choice",), name


def _kind(value: Any) -> tuple[Any, ...]:
    """What a recipe must leave as it is: choices, and the number and the kernels of groups of convolutions."""
    if isinstance(value, list):
        return tuple(str(group).split("x")[-1] for group in value)
    return ("number",) if type(value) in (int, float) else ("choice",)
