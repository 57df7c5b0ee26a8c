"""Presets of unlike families learn to copy and to reverse: a fixed seed, less than 20 CPU seconds each.

The Transformer reverses in every run of the tests; its other task, three more families, and every other preset are for
`make nightly`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.learning.learn import TASKS, learn
from tests.learning.recipes import recipe_and_model

FAMILIES = {  # by preset: the task that it learns in every run of the tests
    "transformer_tiny": "reverse",
    "lstm_tiny": None,
    "conv_s2s_tiny": None,
    "memory_network_tiny": None,
}
CASES = [
    pytest.param(preset, task, marks=() if task == usual else pytest.mark.nightly)
    for preset, usual in FAMILIES.items()
    for task in TASKS
]


@pytest.mark.parametrize(("preset", "task"), CASES)
def test_the_task_is_learnt(corpus_of: Callable[[str, int], Path], tmp_path: Path, preset: str, task: str) -> None:
    recipe, model = recipe_and_model(preset)
    result = learn(model, recipe, corpus_of(task, recipe.pairs), tmp_path / "run", seed=1)
    assert result.passed, result
