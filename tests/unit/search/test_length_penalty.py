"""Length penalties against their formulas."""

from __future__ import annotations

import pytest
import torch

from nmt.search.length_penalty import LengthPenalty


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
def test_penalty_follows_its_formula_for_numbers_and_tensors(kind, length, alpha, expected):
    assert kind(float(length), alpha) == pytest.approx(expected)
    assert kind(torch.tensor([float(length)]), alpha).item() == pytest.approx(expected)
