"""Every preset learns to copy and to reverse, whatever the seed: at least two of three pass. Hours on one core.

``make nightly WORKERS=0 PYTEST_ARGS="tests/learning -k transformer_tiny -s"`` runs one preset and prints its figures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.learning.learn import TASKS, Result, learn
from tests.learning.recipes import RECIPES, recipe_and_model

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]

SEEDS = (1, 2, 3)


def subjects() -> list[Any]:
    """Each preset, those that differ only in the sizes that the recipe replaces together."""
    alike: dict[str, list[str]] = {}
    for preset in RECIPES:
        alike.setdefault(repr(recipe_and_model(preset)), []).append(preset)
    return [pytest.param(presets[0], id="+".join(presets)) for presets in alike.values()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Compose the presets at night only: that takes a second, and by day these tests are deselected."""
    by_day = metafunc.config.option.markexpr == "not nightly"
    metafunc.parametrize("preset", list(RECIPES) if by_day else subjects())


@pytest.mark.parametrize("task", TASKS)
def test_two_of_three_seeds_learn_the_task(
    corpus_of: Callable[[str, int], Path], tmp_path: Path, preset: str, task: str
) -> None:
    recipe, model = recipe_and_model(preset)
    results: list[Result] = []
    for seed in SEEDS:
        result = learn(model, recipe, corpus_of(task, recipe.pairs), tmp_path / str(seed), seed)
        print(f"{preset} {task} seed {seed}: {result.exact:.1f} %, {result.seconds:.0f} CPU seconds")
        results.append(result)
        if sum(one.passed == result.passed for one in results) == 2:  # the third cannot change the verdict
            break
    assert result.passed, results
