"""Batches: every sentence once, within the budget, in an order that is a function of the arguments alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.sections import BatchingConfig
from nmt.data.batching import Indices, plan_batches
from nmt.errors import DataError

LENGTH = st.integers(1, 60)
LENGTHS = st.lists(st.tuples(LENGTH, LENGTH), max_size=80)
OPTIONS = st.fixed_dictionaries(
    {
        "max_tokens": st.none() | st.integers(60, 400),
        "batch_size": st.none() | st.integers(1, 20),
        "seed": st.integers(0, 3),
        "epoch": st.integers(1, 3),
        "shuffle": st.booleans(),
        "sort_window": st.none() | st.integers(1, 90),
        "count_padding": st.booleans(),
    }
).filter(lambda options: options["max_tokens"] or options["batch_size"])


def sides(lengths: list[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    table = np.array(lengths, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def tokens(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64], *, count_padding: bool, **_: Any) -> int:
    """What a batch of sentences of such lengths takes of its budget."""
    if count_padding:
        return int(len(source) * max(source.max(), target.max()))
    return int(max(source.sum(), target.sum()))


def plan(
    source: Indices, target: Indices | None, *, seed: int = 1, epoch: int = 1, shuffle: bool = True, **options: Any
) -> list[Indices]:
    return plan_batches(source, target, BatchingConfig(**options), seed, epoch, shuffle)


def numbers(batches: list[npt.NDArray[np.int64]]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@given(LENGTHS, OPTIONS)
def test_every_sentence_is_in_exactly_one_batch(lengths: list[tuple[int, int]], options: dict[str, Any]) -> None:
    batches = plan(*sides(lengths), **options)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    assert all(len(batch) for batch in batches)


@given(LENGTHS, OPTIONS)
def test_no_batch_exceeds_its_budget_on_either_side(lengths: list[tuple[int, int]], options: dict[str, Any]) -> None:
    source, target = sides(lengths)
    for batch in plan(source, target, **options):
        if options["max_tokens"] is not None:
            assert tokens(source[batch], target[batch], **options) <= options["max_tokens"]
        if options["batch_size"] is not None:
            assert len(batch) <= options["batch_size"]


@given(LENGTHS, OPTIONS)
def test_no_batch_could_have_taken_the_next_sentence(lengths: list[tuple[int, int]], options: dict[str, Any]) -> None:
    source, target = sides(lengths)
    batches = plan(source, target, **(options | {"shuffle": False}))
    for batch, following in zip(batches, batches[1:]):
        more = np.append(batch, following[0])
        over_tokens = options["max_tokens"] and tokens(source[more], target[more], **options) > options["max_tokens"]
        over_size = options["batch_size"] and len(more) > options["batch_size"]
        assert over_tokens or over_size


@given(LENGTHS, OPTIONS)
def test_the_plan_is_a_pure_function(lengths: list[tuple[int, int]], options: dict[str, Any]) -> None:
    source, target = sides(lengths)
    before = source.copy(), target.copy()
    np.random.seed(len(lengths))
    first = numbers(plan(source, target, **options))
    np.random.seed(0)
    assert numbers(plan(source, target, **options)) == first
    assert (source == before[0]).all() and (target == before[1]).all()


@given(LENGTHS)
def test_without_shuffling_lengths_ascend_and_ties_keep_the_order_of_the_corpus(lengths: list[tuple[int, int]]) -> None:
    batches = plan(*sides(lengths), max_tokens=300, batch_size=None, shuffle=False)
    order = [number for batch in numbers(batches) for number in batch]
    assert order == sorted(range(len(lengths)), key=lambda number: (*lengths[number], number))


@pytest.mark.parametrize("changed", [{"seed": 2}, {"epoch": 2}])
def test_another_seed_or_epoch_gives_other_batches_in_another_order(changed: dict[str, int]) -> None:
    lengths = np.random.RandomState(1).randint(1, 20, size=(500, 2))
    options: dict[str, Any] = {"max_tokens": 200, "batch_size": None, "seed": 1, "epoch": 1}
    one = numbers(plan(lengths[:, 0], lengths[:, 1], **options))
    other = numbers(plan(lengths[:, 0], lengths[:, 1], **(options | changed)))
    assert one != other
    assert {frozenset(batch) for batch in one} != {frozenset(batch) for batch in other}


def test_a_window_of_the_size_of_a_batch_mixes_lengths() -> None:
    lengths = np.repeat(np.arange(1, 11, dtype=np.int64), 20)
    plans = {
        window: plan(lengths, lengths, max_tokens=None, batch_size=20, sort_window=window) for window in (None, 20)
    }
    kinds = {
        window: np.mean([len(np.unique(lengths[batch])) for batch in batches]) for window, batches in plans.items()
    }
    assert kinds[None] == 1 and kinds[20] > 5


def test_shuffled_batches_do_not_come_in_order_of_length() -> None:
    lengths = np.arange(1, 200)
    firsts = [int(batch[0]) for batch in plan(lengths, lengths, max_tokens=400, batch_size=None)]
    assert firsts != sorted(firsts)


def test_the_order_is_the_same_in_every_version_of_numpy() -> None:
    lengths = np.full(8, 3)
    batches = plan(lengths, lengths, max_tokens=6, batch_size=None, seed=7, epoch=2)
    raw = np.random.PCG64(np.random.SeedSequence((7, 2, 0))).random_raw(8).tolist()
    drawn = sorted(range(8), key=lambda number: raw[number])
    assert sorted(numbers(batches)) == sorted(drawn[start : start + 2] for start in range(0, 8, 2))


def test_sources_alone_are_batched_by_their_lengths() -> None:
    lengths = np.array([5, 1, 3, 1])
    batches = plan(lengths, None, max_tokens=6, batch_size=None, shuffle=False)
    assert numbers(batches) == [[1, 3], [2], [0]]


def test_without_padding_counted_batches_are_of_one_size() -> None:
    lengths = np.random.RandomState(1).randint(1, 60, size=(5000, 2))
    batches = plan(*lengths.T, max_tokens=2000, batch_size=None, shuffle=False, count_padding=False)
    sizes = [int(lengths[batch].sum(0).max()) for batch in batches]
    assert all(2000 - 60 < size <= 2000 for size in sizes[:-1])
    alone = plan(lengths[:, 0], None, max_tokens=2000, batch_size=None, shuffle=False, count_padding=False)
    assert all(2000 - 60 < lengths[batch, 0].sum() <= 2000 for batch in alone[:-1])


def test_a_pair_that_cannot_fit_is_named_with_what_to_raise() -> None:
    with pytest.raises(DataError, match=r"sentence 1 .* source 3 and target 12 .* 1 of 2 .*--max-tokens\) to 12"):
        plan(np.array([2, 3]), np.array([2, 12]), max_tokens=10, batch_size=None)


def test_long_pairs_can_be_left_out() -> None:
    batches = plan(np.array([2, 3]), np.array([2, 12]), max_tokens=10, batch_size=None, skip_long=True)
    assert numbers(batches) == [[0]]


def test_leaving_out_everything_is_an_error() -> None:
    with pytest.raises(DataError, match="2 of 2 do not fit"):
        plan(np.array([20, 30]), np.array([2, 12]), max_tokens=10, batch_size=None, skip_long=True)
