"""Presets of six unlike families learn to copy and to reverse: a fixed seed, less than a CPU minute each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.learning.learn import TASKS, learn
from tests.learning.recipes import recipe_and_model

FAMILIES = ("transformer_tiny", "lstm_tiny", "conv_s2s_tiny", "memory_network_tiny", "lstm_moe_tiny", "gnmt_tiny")


SLOW = {("lstm_moe_tiny", "reverse")}
CASES = [
    pytest.param(preset, task, marks=pytest.mark.nightly if (preset, task) in SLOW else ())
    for preset in FAMILIES
    for task in TASKS
]


@pytest.mark.parametrize(("preset", "task"), CASES)
def test_the_task_is_learnt(corpus_of: Callable[[str, int], Path], tmp_path: Path, preset: str, task: str) -> None:
    recipe, model = recipe_and_model(preset)
    result = learn(model, recipe, corpus_of(task, recipe.pairs), tmp_path / "run", seed=1)
    assert result.passed, result
