"""Figures of a corpus that are taken from counts of its lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.training.setup.description import _describe_lengths


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_figures_of_lengths_are_those_of_a_list_of_all_of_them(lengths: list[int]) -> None:
    pieces = np.array(lengths) - 1
    found = _describe_lengths(np.array(lengths))
    assert found["pieces"] == pieces.sum() and found["longest"] == pieces.max()
    assert found["mean"] == pytest.approx(pieces.mean(), abs=0.0501)
    assert [found["median"], found["percentile_95"]] == pytest.approx(np.percentile(pieces, [50, 95]).tolist())


def test_of_no_sentences_all_figures_are_zero() -> None:
    assert not any(_describe_lengths(np.zeros(0, dtype=np.int64)).values())
