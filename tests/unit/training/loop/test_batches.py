"""Positions in the data: every sentence once an epoch, and the same from any starting point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from nmt.config.sections import BatchingConfig
from nmt.data.batching.mixing import Mixture, Stage
from nmt.data.corpus.folder import Split
from nmt.errors import DataError
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.loop.batches import TrainingBatches, UpdateBatches, read_batch

MakeSplit = Callable[..., Split]


def updates_of(batches: TrainingBatches, start: DataPosition, count: int) -> Iterator[UpdateBatches]:
    for _ in range(count):
        update = batches.at(start)
        yield update
        start = update.following


def contents(updates: Iterator[UpdateBatches]) -> list[list[list[int]]]:
    return [[sentences.numbers.tolist() for sentences in update.batches] for update in updates]


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_an_update_of_a_given_size_is_the_same_on_any_number_of_processes(
    make_split: MakeSplit, processes: int
) -> None:
    split, options = make_split(50), BatchingConfig(max_tokens=20, tokens_per_update=160)
    alone, together = TrainingBatches(split, options, seed=1), TrainingBatches(split, options, 1, processes)
    assert alone.batches_in_update == together.batches_in_update == 8
    one, other = (contents(updates_of(batches, DataPosition(), 3)) for batches in (alone, together))
    assert one == other and len(one[0]) == 8


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


def in_stages(split: Split, processes: int = 1, **options: int) -> TrainingBatches:
    """The first half alone, the second one from update 8 on, and from epoch 6 on everything once."""
    stages = [
        Stage(Mixture((25, 25), (25, 0))),
        Stage(Mixture((25, 25), (0, 25)), from_update=8),
        Stage(from_epoch=6),
    ]
    return TrainingBatches(split, BatchingConfig(max_tokens=30, **options), 1, processes, stages)


def course(batches: TrainingBatches, count: int, position: DataPosition, first: int = 1) -> Iterator[UpdateBatches]:
    for update in range(first, first + count):
        yield (made := batches.at(position, update))
        position = made.following


def test_a_stage_begins_with_exactly_its_update_in_an_epoch_of_its_own(make_split: MakeSplit) -> None:
    batches = in_stages(make_split(50))
    updates = list(course(batches, 60, DataPosition()))
    halves = [{int(index) // 25 for batch in update.batches for index in batch.numbers} for update in updates]
    assert halves[:7] == [{0}] * 7 and halves[7] == {1}
    assert updates[6].ends_epoch and updates[6].following == DataPosition(3, 0, stage=1, since=3)
    whole = batches.updates_in_epoch(1)
    assert whole < 7 < 2 * whole, "update 8 is to come in the midst of the second epoch"
    first_of_all = next(number for number, update in enumerate(updates) if update.epoch == 6)
    assert set().union(*halves[7:first_of_all]) == {1} and updates[first_of_all].following.stage == 2
    of_epoch = [index for update in updates if update.epoch == 6 for batch in update.batches for index in batch.numbers]
    assert sorted(of_epoch) == list(range(50)) and updates[-1].epoch > 6
    ends = [number for number, update in enumerate(updates, start=1) if update.ends_epoch]
    assert [batches.updates_in_epoch(epoch) for epoch in range(1, len(ends) + 1)] == np.diff([0, *ends]).tolist()


def test_what_follows_a_position_in_any_stage_does_not_depend_on_how_it_was_reached(make_split: MakeSplit) -> None:
    split = make_split(50)
    updates = list(course(in_stages(split), 60, DataPosition()))
    for behind in range(59):
        following = next(course(in_stages(split), 1, updates[behind].following, behind + 2))
        assert contents(iter([following])) == contents(iter([updates[behind + 1]]))


def test_mixed_batches_are_the_same_for_two_processes_as_for_twice_the_accumulation(make_split: MakeSplit) -> None:
    split = make_split(50)
    alone, together = in_stages(split, update_freq=2), in_stages(split, processes=2)
    assert contents(course(alone, 20, DataPosition())) == contents(course(together, 20, DataPosition()))


@pytest.mark.parametrize("beyond", [0, 5])
def test_a_position_behind_the_last_batch_of_its_epoch_is_an_error(make_split: MakeSplit, beyond: int) -> None:
    batches = TrainingBatches(make_split(50), BatchingConfig(max_tokens=20), seed=1)
    count = len(batches.epoch(DataPosition(2)).plan)
    with pytest.raises(
        DataError,
        match=f"^micro-batch {count + beyond + 1} of epoch 2 .* has {count} micro-batches, .*--reset-dataloader",
    ):
        batches.at(DataPosition(2, count + beyond), 9)


def test_a_stage_goes_on_after_an_update_that_was_skipped(make_split: MakeSplit) -> None:
    """The last update of a stage is not made; the next has its number, and the data goes on."""
    batches = in_stages(make_split(50))
    last = list(course(batches, 7, DataPosition()))[-1]
    again = batches.at(last.following, 7)
    assert again.epoch == 3 and again.following == DataPosition(3, 1, stage=1, since=3)


@pytest.mark.parametrize(
    ("epoch", "update", "stage"), [(1, 1, 0), (2, 7, 0), (2, 8, 1), (9, 8, 2), (9, 7, 0), (5, 99, 1)]
)
def test_an_epoch_that_begins_anew_is_in_the_stage_that_is_due(
    make_split: MakeSplit, epoch: int, update: int, stage: int
) -> None:
    start = in_stages(make_split(50)).start_of_epoch(epoch, update)
    assert start == DataPosition(epoch, 0, stage, since=epoch if stage else 1)


def test_two_stages_that_are_due_together_are_not_gone_through_one_by_one(make_split: MakeSplit) -> None:
    stages = [Stage(), Stage(Mixture((50,), (50,)), from_update=3), Stage(Mixture((50,), (10,)), from_epoch=2)]
    batches = TrainingBatches(make_split(50), BatchingConfig(max_tokens=20), 1, stages=stages)
    assert batches.at(DataPosition(batch=1), 2).following == DataPosition(2, 0, stage=2, since=2)


def test_a_batch_with_much_padding_is_computed_in_parts_of_the_same_update(make_split: MakeSplit) -> None:
    split = make_split(200, longest=12)
    whole, parted = (
        TrainingBatches(split, BatchingConfig(max_tokens=400, count_padding=False, max_padding=most), seed=1)
        for most in (None, 0.05)
    )
    assert whole.updates_in_epoch(1) == parted.updates_in_epoch(1) > 2
    for one, other in zip(*(updates_of(each, DataPosition(), whole.updates_in_epoch(1)) for each in (whole, parted))):
        assert len(one.batches) == 1 < len(other.batches) and one.following == other.following
        assert sorted(one.batches[0].numbers.tolist()) == sorted(
            sum((part.numbers.tolist() for part in other.batches), [])
        )
