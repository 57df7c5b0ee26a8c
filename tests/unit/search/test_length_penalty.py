"""Length penalties against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from nmt.errors import UsageError
from nmt.search.config import BeamConfig, LengthPenalty, StopRule
from nmt.search.history import Finished


@pytest.mark.parametrize(
    ("kind", "length", "alpha", "expected"),
    [
        (LengthPenalty.gnmt, 1, 0.6, 1.0),
        (LengthPenalty.gnmt, 7, 1.0, 2.0),
        (LengthPenalty.gnmt, 19, 0.5, 2.0),
        (LengthPenalty.power, 9, 0.5, 3.0),
        (LengthPenalty.power, 5, 1.0, 5.0),
        (LengthPenalty.power, 5, 0.0, 1.0),
        (LengthPenalty.gnmt, 5, 0.0, 1.0),
    ],
)
def test_penalty_follows_its_formula_for_numbers_and_arrays(kind, length, alpha, expected):
    assert kind(float(length), alpha) == pytest.approx(expected)
    assert kind(np.array([length], dtype=np.float32), alpha).item() == pytest.approx(expected)


def test_a_penalty_beyond_all_numbers_lets_a_search_end() -> None:
    """``all`` waits for the last hypothesis, which minus infinity over infinity must not hide."""
    limits = np.array([1000, 10])
    config = BeamConfig(stop=StopRule.all, length_penalty=LengthPenalty.power, lenpen=20.0)
    finished = Finished(config, 1, 1, limits, np.zeros(2, dtype=bool))
    sentences, nothing_left = np.array([0, 1]), np.full(2, -np.inf, dtype=np.float32)
    with np.errstate(over="ignore"):
        assert LengthPenalty.power(limits.astype(np.float32), 20.0)[0] == float("inf")
    assert finished.settled(sentences, nothing_left, length=1).tolist() == [True, True]
    assert finished.settled(sentences, np.full(2, -1.0, dtype=np.float32), length=1).tolist() == [False, False]


def test_an_exponent_that_no_score_survives_is_refused() -> None:
    with pytest.raises(UsageError, match="search.lenpen=1000 is more than the maximum of 20"):
        BeamConfig(lenpen=1000)
