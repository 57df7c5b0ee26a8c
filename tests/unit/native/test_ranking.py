"""Summing up the scores of a step in C; what is chosen is tested with the searches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from nmt.native.ranking import summarise
from tests.unit.native.levels import needs_library


@needs_library
@pytest.mark.parametrize("vocabulary", [5, 63, 64, 100, 130])
def test_columns_of_nothing_change_no_bit_of_the_normaliser(vocabulary: int) -> None:
    scores = torch.randn(50, vocabulary)
    _, one = summarise(scores, normalise=True)
    _, other = summarise(F.pad(scores, (0, 77), value=-torch.inf), normalise=True)
    assert one is not None and other is not None and torch.equal(one, other)
    torch.testing.assert_close(one, scores.logsumexp(1), atol=1e-6, rtol=1e-6)


@needs_library
def test_nothing_but_nothing_sums_up_to_nothing() -> None:
    maxima, normaliser = summarise(torch.full((2, 70), -torch.inf), normalise=True)
    assert normaliser is not None and normaliser.tolist() == [-torch.inf] * 2
    assert maxima.shape == (2, 2) and maxima.eq(-torch.inf).all()
