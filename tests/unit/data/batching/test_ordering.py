"""Orders made in blocks and groups are those of one sort over everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.batching import ordering
from nmt.data.batching.ordering import permutation, sort_by_length
from nmt.data.corpus import lengths


@pytest.fixture(autouse=True, scope="module")
def small_blocks_and_groups() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lengths, "BLOCK", 7)
        patch.setattr(ordering, "GROUP", 10)
        yield


@given(st.integers(0, 300), st.integers(0, 5))
def test_a_random_order_is_that_of_the_bits_that_are_drawn(count: int, seed: int) -> None:
    drawn = np.random.PCG64(np.random.SeedSequence((seed, 2, 0))).random_raw(count)
    assert permutation(count, seed, 2, 0).tolist() == np.argsort(drawn, kind="stable").tolist()


def test_equal_draws_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.random.RandomState(1).randint(0, 3, 200).astype(np.uint64) * np.uint64(2**62)

    class Repeating:
        def __init__(self, seed: Any) -> None:
            self.at = 0

        def random_raw(self, count: int) -> Any:
            self.at += count
            return bits[self.at - count : self.at]

    monkeypatch.setattr(np.random, "PCG64", Repeating)
    assert permutation(200, 1).tolist() == np.argsort(bits, kind="stable").tolist()


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 70_000)), max_size=60), st.booleans(), st.integers(0, 9))
def test_sorting_by_length_is_stable_and_looks_at_the_first_column_first(
    pairs: list[tuple[int, int]], complete: bool, seed: int
) -> None:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    order = permutation(len(pairs), seed)
    if not complete:
        order = np.concatenate([order, order[::3]])
    expected = order[np.lexsort((table[1, order], table[0, order]))]
    sort_by_length(order, table[0], table[1], complete=complete)
    assert order.tolist() == expected.tolist()
