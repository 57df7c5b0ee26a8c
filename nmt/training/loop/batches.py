"""Where training stands in its data. What comes next is a pure function of the position, so resuming is exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nmt.config.sections import BatchingConfig
from nmt.data.batch import ALIGNMENTS, Batch, collate, join_alignments
from nmt.data.batching import plan_batches
from nmt.data.corpus import Split

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Position:
    """The next batch to train on: which epoch (from 1), and how many of its batches are behind."""

    epoch: int = 1
    batch: int = 0


@dataclass(frozen=True)
class UpdateBatches:
    """The sentences of one update, by micro-batch, and the position after it."""

    batches: tuple[Indices, ...]
    epoch: int
    following: Position

    @property
    def ends_epoch(self) -> bool:
        return self.following.epoch > self.epoch


class TrainingBatches:
    """The updates of a split. An update is made of consecutive batches and never spans two epochs.

    With several ``processes`` an update has as many batches more; they are the same for all of them.
    """

    def __init__(self, split: Split, options: BatchingConfig, seed: int, processes: int = 1) -> None:
        self._split = split
        self._options = options
        self._seed = seed
        self.batches_in_update = options.update_freq * processes
        self._planned: tuple[int, list[Indices]] = (0, [])  # the last epoch asked for, and its batches

    def at(self, position: Position) -> UpdateBatches:
        plan = self._plan(position.epoch)
        end = min(position.batch + self.batches_in_update, len(plan))
        following = Position(position.epoch, end) if end < len(plan) else Position(position.epoch + 1)
        return UpdateBatches(tuple(plan[position.batch : end]), position.epoch, following)

    def batch(self, indices: Indices) -> Batch:
        return read_batch(self._split, indices)

    def updates_in_epoch(self, epoch: int) -> int:
        return -(-len(self._plan(epoch)) // self.batches_in_update)

    def _plan(self, epoch: int) -> list[Indices]:
        if self._planned[0] != epoch:
            batches = planned(self._split, self._options, self._seed, epoch)
            self._planned = (epoch, batches)
        return self._planned[1]


def planned(split: Split, options: BatchingConfig, seed: int, epoch: int) -> list[Indices]:
    """The batches of an epoch, in order."""
    return plan_batches(
        split.source_lengths,
        split.target_lengths,
        max_tokens=options.token_limit,
        batch_size=options.batch_size,
        seed=seed,
        epoch=epoch,
        sort_window=options.sort_window,
        skip_long=options.skip_long,
        count_padding=options.count_padding,
    )


def read_batch(split: Split, indices: Indices) -> Batch:
    numbers, extras = indices.tolist(), {}
    if split.alignments is not None:
        extras[ALIGNMENTS] = join_alignments([split.alignments[i] for i in numbers])
    return collate([split.source(i) for i in numbers], [split.target(i) for i in numbers], numbers, extras)
