"""Positions in the data: every sentence once an epoch, and the same from any starting point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from nmt.config.sections import BatchingConfig
from nmt.data.corpus import Split
from nmt.training.loop.batches import DataPosition, TrainingBatches, UpdateBatches, read_batch

MakeSplit = Callable[..., Split]


def updates_of(batches: TrainingBatches, start: DataPosition, count: int) -> Iterator[UpdateBatches]:
    for _ in range(count):
        update = batches.at(start)
        yield update
        start = update.following


def contents(updates: Iterator[UpdateBatches]) -> list[list[list[int]]]:
    return [[sentences.numbers.tolist() for sentences in update.batches] for update in updates]


@pytest.mark.parametrize("update_freq", [1, 2, 3, 100])
def test_an_epoch_holds_every_sentence_once(make_split: MakeSplit, update_freq: int) -> None:
    batches = TrainingBatches(make_split(50), BatchingConfig(max_tokens=20, update_freq=update_freq), seed=1)
    updates = list(updates_of(batches, DataPosition(), batches.updates_in_epoch(1)))
    assert [update.ends_epoch for update in updates] == [False] * (len(updates) - 1) + [True]
    assert updates[-1].following == DataPosition(2, 0)
    assert sorted(index for update in contents(iter(updates)) for batch in update for index in batch) == list(range(50))


def test_the_micro_batches_of_an_update_are_consecutive_batches_of_one_epoch(make_split: MakeSplit) -> None:
    split = make_split(50)
    one = TrainingBatches(split, BatchingConfig(max_tokens=20), seed=1)
    three = TrainingBatches(split, BatchingConfig(max_tokens=20, update_freq=3), seed=1)
    singles = [
        batch for update in contents(updates_of(one, DataPosition(), one.updates_in_epoch(1))) for batch in update
    ]
    threes = contents(updates_of(three, DataPosition(), three.updates_in_epoch(1)))
    assert threes == [singles[start : start + 3] for start in range(0, len(singles), 3)]


def test_padding_counts_unless_told_otherwise(make_split: MakeSplit) -> None:
    split = make_split(200)
    sums = {}
    for counted in (True, False):
        batches = TrainingBatches(split, BatchingConfig(max_tokens=60, count_padding=counted), seed=1)
        of_epoch = contents(updates_of(batches, DataPosition(), batches.updates_in_epoch(1)))
        sums[counted] = [
            max(int(side[batch].sum()) for side in (split.source_lengths, split.target_lengths))
            for update in of_epoch
            for batch in update
        ]
    assert max(map(max, sums.values())) <= 60 and len(sums[False]) < len(sums[True])


def test_what_follows_a_position_does_not_depend_on_how_it_was_reached(make_split: MakeSplit) -> None:
    split, options = make_split(50), BatchingConfig(max_tokens=20, update_freq=2)
    from_start = list(updates_of(TrainingBatches(split, options, seed=1), DataPosition(), 30))
    assert from_start[-1].epoch > 2
    fresh = TrainingBatches(split, options, seed=1)
    assert contents(updates_of(fresh, from_start[9].following, 20)) == contents(iter(from_start[10:]))


def test_epochs_and_seeds_have_orders_of_their_own(make_split: MakeSplit) -> None:
    split, options = make_split(50), BatchingConfig(max_tokens=20)
    orders = {
        str(contents(updates_of(TrainingBatches(split, options, seed), DataPosition(epoch), 5)))
        for seed in (1, 2)
        for epoch in (1, 2)
    }
    assert len(orders) == 4


def test_a_batch_holds_the_sentences_asked_for(make_split: MakeSplit) -> None:
    split = make_split(10)
    batches = TrainingBatches(split, BatchingConfig(), seed=1)
    sentences = batches.at(DataPosition()).batches[0][:3]
    batch = batches.batch(sentences)
    assert batch.sentence_ids.tolist() == sentences.numbers.tolist()
    assert batch.targets.tolist() == [piece for index in sentences.numbers for piece in split.target(index).tolist()]


def test_a_batch_holds_the_alignments_of_its_sentences_by_their_place_in_it(make_split: MakeSplit) -> None:
    aligned = [
        np.array([[0, 0], [1, number]]) if number % 2 else np.zeros((0, 2), dtype=np.uint16) for number in range(6)
    ]
    split = replace(make_split(6), alignments=aligned)
    batch = read_batch(split, np.array([3, 2, 5]))
    assert batch.extras["alignments"].tolist() == [[0, 0, 0], [0, 1, 3], [2, 0, 0], [2, 1, 5]]
    assert read_batch(split, np.array([0, 2])).extras["alignments"].shape == (0, 3)
    assert not read_batch(make_split(6), np.array([0])).extras
