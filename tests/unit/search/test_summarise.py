"""Summing up the scores of a step in C; what is chosen is tested with the searches."""

from __future__ import annotations

import numpy as np
import pytest

from nmt.engines.c_scores import summarise
from tests.unit.native.levels import needs_library


@needs_library
@pytest.mark.parametrize("vocabulary", [5, 63, 64, 100, 130])
def test_columns_of_nothing_change_no_bit_of_the_normaliser(vocabulary: int) -> None:
    scores = np.random.default_rng(1).normal(size=(50, vocabulary)).astype(np.float32)
    _, one = summarise(scores, normalise=True)
    _, other = summarise(np.pad(scores, ((0, 0), (0, 77)), constant_values=-np.inf), normalise=True)
    assert one is not None and other is not None and one.tolist() == other.tolist()
    np.testing.assert_allclose(one, np.logaddexp.reduce(scores.astype(np.float64), axis=1), atol=1e-6)


@needs_library
def test_nothing_but_nothing_sums_up_to_nothing() -> None:
    maxima, normaliser = summarise(np.full((2, 70), -np.inf, dtype=np.float32), normalise=True)
    assert normaliser is not None and normaliser.tolist() == [-np.inf] * 2
    assert maxima.shape == (2, 2) and (maxima == -np.inf).all()
