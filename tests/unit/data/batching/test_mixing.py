"""Mixtures: the shares that were asked for, and no sentence again before all others of its corpus."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.batching.mixing import Mixture, Stage

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("sizes", "weights", "counts"),
    [
        ([100, 300], [1, 1], [200, 200]),
        ([100, 300], [3, 1], [300, 100]),
        ([100, 300, 50], [1, 3, 0], [100, 300, 0]),  # what is left out does not make the epoch longer
        ([0, 7], [0, 2], [0, 7]),
        ([1000, 10], [10**6, 1], [1010, 1]),  # at least one
    ],
)
def test_an_epoch_is_as_long_as_the_corpora_with_a_weight_and_has_their_shares(
    sizes: list[int], weights: list[float], counts: list[int]
) -> None:
    assert list(Mixture.of_weights(sizes, weights).counts) == counts


@pytest.mark.parametrize("temperature", [0.5, 1.0, 5.0, 1000.0])
def test_with_a_temperature_shares_follow_a_power_of_the_sizes(temperature: float) -> None:
    sizes = np.array([8_000_000, 120_000, 3_000])
    counts = np.array(Mixture.of_temperature(sizes.tolist(), temperature).counts)
    powers = sizes ** (1 / temperature)
    np.testing.assert_allclose(counts, sizes.sum() * powers / powers.sum(), atol=1)
    assert counts.sum() == pytest.approx(sizes.sum(), abs=3)


def test_a_corpus_without_sentences_has_no_share_at_any_temperature() -> None:
    assert Mixture.of_temperature([0, 5], 3.0).counts == (0, 5)
    assert Mixture.of_temperature([10**300, 1], 0.001).counts[1] == 0


@given(SIZES, st.data(), st.integers(0, 3))
def test_no_sentence_comes_again_before_all_others_of_its_corpus(
    sizes: list[int], data: st.DataObject, seed: int
) -> None:
    weights = data.draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)).filter(any))
    mixture = Mixture.of_weights(sizes, weights)
    epochs = [mixture.draw(seed, stage=1, epoch=epoch) for epoch in range(1, 5)]
    assert [len(epoch) for epoch in epochs] == [len(mixture)] * 4
    begins = np.cumsum([0, *sizes])
    for begin, size, count in zip(begins.tolist(), sizes, mixture.counts):
        drawn = [[n - begin for n in epoch.tolist() if begin <= n < begin + size] for epoch in epochs]
        assert [len(of_epoch) for of_epoch in drawn] == [count] * 4
        stream = sum(drawn, [])
        for start in range(0, len(stream), size):
            one_pass = stream[start : start + size]
            assert len(set(one_pass)) == len(one_pass)


def test_each_pass_epoch_stage_and_seed_has_an_order_of_its_own() -> None:
    mixture = Mixture.of_weights([30, 30], [1, 1])
    draws = [mixture.draw(*key).tolist() for key in [(1, 0, 1), (1, 0, 2), (1, 1, 1), (2, 0, 1)]]
    assert len({tuple(draw) for draw in draws}) == 4
    assert mixture.draw(1, 0, 1).tolist() == draws[0]
    assert [number % 30 for number in draws[0][30:]] != draws[0][:30], "corpora are not drawn from alike"


def test_a_small_corpus_comes_several_times_in_an_epoch_and_as_often_each() -> None:
    drawn = Counter(Mixture.of_weights([4, 96], [1, 1]).draw(1, 0, 1).tolist())
    assert {drawn[number] for number in range(4)} == {12, 13}


def test_a_stage_is_due_from_its_update_or_where_its_epoch_begins() -> None:
    by_update, by_epoch = Stage(from_update=10), Stage(from_epoch=3)
    assert [by_update.is_due(update, None) for update in (9, 10, 11)] == [False, True, True]
    assert [by_epoch.is_due(99, epoch) for epoch in (None, 2, 3, 4)] == [False, False, True, True]
