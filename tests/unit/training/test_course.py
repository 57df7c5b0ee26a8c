"""The best validation so far, and patience."""

from __future__ import annotations

import json

import pytest

from nmt.training.loop.validation import BestScore


@pytest.mark.parametrize(
    ("higher_is_better", "values", "improved"),
    [
        (False, [3.0, 2.0, 2.0, 2.5, 1.9], [True, True, False, False, True]),
        (True, [3.0, 2.0, 3.0, 3.5, 1.9], [True, False, False, True, False]),
        (False, [float("nan"), 2.0, float("-inf")], [False, True, False]),
    ],
)
def test_a_metric_improves_in_its_own_direction(
    higher_is_better: bool, values: list[float], improved: list[bool]
) -> None:
    best = BestScore("any", higher_is_better=higher_is_better)
    assert [best.observe(value, update) for update, value in enumerate(values)] == improved


def test_patience_counts_validations_since_the_last_improvement() -> None:
    best = BestScore("loss", higher_is_better=False)
    without_improvement = []
    for update, value in enumerate([3.0, 3.0, 2.0, 2.0, 2.0]):
        best.observe(value, update)
        without_improvement.append(best.without_improvement)
    assert without_improvement == [0, 1, 0, 1, 2]


def test_patience_goes_on_counting_after_a_restart() -> None:
    first = BestScore("loss", higher_is_better=False, patience=3)
    for update, value in enumerate([1.0, 2.0, 2.0]):
        first.observe(value, update)
    second = BestScore("loss", higher_is_better=False, patience=3)
    second.restore(json.loads(json.dumps(first.state())))
    assert (second.value, second.update, second.history) == (1.0, 0, [1.0, 2.0, 2.0])
    assert second.without_improvement == 2
    second.observe(2.0, 3)
    assert second.without_improvement == 3


def test_the_history_of_another_metric_is_left_out() -> None:
    first = BestScore("loss", higher_is_better=False, patience=1)
    first.observe(1.0, 1)
    first.observe(2.0, 2)
    second = BestScore("bleu", higher_is_better=True, patience=1)
    second.restore(first.state())
    assert second.value is None and second.without_improvement == 0
