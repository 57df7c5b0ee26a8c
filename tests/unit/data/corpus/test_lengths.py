"""Lengths that are read off the offsets are what an array of them would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.corpus import lengths
from nmt.data.corpus.lengths import (
    ChainedLengths,
    Lengths,
    LongerSide,
    StoredLengths,
    length_counts,
    longest,
    percentile,
)

PARTS = st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=4)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lengths, "BLOCK", 5)
        yield


def stored(numbers: list[int]) -> StoredLengths:
    return StoredLengths(np.cumsum([0, *numbers]))


@given(PARTS, st.data())
def test_lengths_of_a_chain_are_those_of_its_parts_whatever_is_asked_for(parts: list[list[int]], data: Any) -> None:
    chained: Lengths = ChainedLengths([stored(part) for part in parts])
    expected = np.array([length for part in parts for length in part], dtype=np.int64)
    assert len(chained) == len(expected)
    some = st.integers(0, len(expected))
    first, last = data.draw(some), data.draw(some)
    assert chained[first:last].tolist() == expected[first:last].tolist()
    assert np.asarray(chained).tolist() == expected.tolist()
    if len(expected):
        numbers = np.array(data.draw(st.lists(st.integers(0, len(expected) - 1))), dtype=np.uint32)
        assert chained[numbers].tolist() == expected[numbers].tolist()
        assert int(chained[len(expected) - 1]) == expected[-1]


@given(st.lists(st.integers(0, 9), max_size=30))
def test_sums_and_counts_over_blocks_are_those_of_the_whole(numbers: list[int]) -> None:
    there = stored(numbers)
    assert longest(there) == there.max() == max(numbers, default=0)
    assert there.sum() == sum(numbers) and there.tolist() == numbers
    assert length_counts(there).tolist() == np.bincount(np.array(numbers, dtype=np.int64)).tolist()
    picked = np.arange(0, len(numbers), 2)
    assert length_counts(there, picked).tolist() == np.bincount(np.array(numbers, dtype=np.int64)[picked]).tolist()


def test_the_longer_side_of_each_pair_counts() -> None:
    assert LongerSide([stored([1, 5, 2]), stored([3, 4, 2])]).tolist() == [3, 5, 2]


@pytest.mark.parametrize("percent", [0, 1, 50, 95, 99.9, 100])
@pytest.mark.parametrize("size", [1, 2, 21, 1000])
def test_a_percentile_of_counted_lengths_is_that_of_numpy(percent: float, size: int) -> None:
    lengths = np.random.default_rng(size).integers(0, 40, size)
    assert percentile(np.bincount(lengths), percent) == pytest.approx(np.percentile(lengths, percent))


def test_no_lengths_have_the_percentile_zero() -> None:
    assert percentile(np.zeros(0, dtype=np.int64), 50) == percentile(np.zeros(3, dtype=np.int64), 50) == 0.0
