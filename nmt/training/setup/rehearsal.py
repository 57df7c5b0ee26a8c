"""What training would be like, found by trying a few updates that are thrown away: nmt-train --dry-run.

The largest updates of the first epoch say how much memory is needed: first a quarter of each of their batches, then a half,
and the whole only if what these two took says that it will fit. Then an update of middle size is timed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from nmt.config.sections import TrainingConfig
from nmt.data.vocabulary import Ints
from nmt.optim import Progress
from nmt.reporting.resources import give_back, most_memory, peak_memory
from nmt.training.loop.batches import DataPosition, TrainingBatches, UpdateBatches
from nmt.training.loop.learner import SMALLER_BATCHES
from nmt.training.loop.updater import Updater
from nmt.training.setup.trials import checkpoint_bytes

logger = logging.getLogger("nmt.training")

PARTS = (4, 2)  # of each batch a fourth, and a half, before the whole
TOO_LARGE = f"the largest batches will not fit; {SMALLER_BATCHES}"


@dataclass(frozen=True)
class BatchSize:
    """A batch, or the part of one that is computed at once."""

    pairs: int
    source_pieces: int
    target_pieces: int
    longest_source: int
    longest_target: int

    @property
    def places(self) -> int:
        """Pieces and padding of both sides."""
        return self.pairs * (self.longest_source + self.longest_target)

    def __str__(self) -> str:
        return (
            f"{self.pairs:,} pairs of up to {self.longest_source} source and {self.longest_target} target pieces "
            f"({self.places:,} with padding)"
        )


@dataclass(frozen=True)
class Epoch:
    """The updates of an epoch, each with its batches."""

    updates: list[list[BatchSize]]

    @property
    def batches(self) -> list[BatchSize]:
        return [batch for update in self.updates for batch in update]

    @property
    def target_pieces(self) -> list[int]:
        """Of each update."""
        return [sum(batch.target_pieces for batch in update) for update in self.updates]

    @property
    def padding(self) -> float:
        """Its share of all places."""
        pieces = sum(batch.source_pieces + batch.target_pieces for batch in self.batches)
        return 1 - pieces / max(1, sum(batch.places for batch in self.batches))

    @property
    def largest(self) -> BatchSize:
        return max(self.batches, key=lambda batch: batch.places)

    def costliest(self) -> list[int]:
        """The updates with the batches that may take the most memory: of the most places, the longest sentences, or the
        most pairs."""
        rules: tuple[Callable[[BatchSize], int], ...] = (
            lambda batch: batch.places,
            lambda batch: batch.pairs * max(batch.longest_source, batch.longest_target) ** 2,
            lambda batch: batch.pairs,
        )
        return sorted({int(np.argmax([max(map(rule, update)) for update in self.updates])) for rule in rules})

    def middle(self) -> int:
        """The update with the median of the target pieces."""
        pieces = self.target_pieces
        return int(np.argsort(pieces, kind="stable")[len(pieces) // 2])


@dataclass(frozen=True)
class Memory:
    """Bytes of one process."""

    needed: int
    is_forecast: bool  # the largest updates were not made: they would not fit
    room: int | None  # None: unknown


@dataclass(frozen=True)
class Rehearsal:
    """What is known after it."""

    epoch: Epoch
    memory: Memory
    seconds: float | None  # of an update of middle size; None: it was not tried, for want of memory
    pieces: int  # target pieces of that update


def read_epoch(batches: TrainingBatches) -> Epoch:
    """The first one, as it is planned."""
    updates, count = list[list[BatchSize]](), batches.batches_in_update
    source, target = batches.sides(DataPosition())
    for number in range(batches.updates_in_epoch(1)):
        made = batches.at(DataPosition(batch=number * count))
        updates.append([_size(source[part.numbers], target[part.numbers]) for part in made.batches])
    return Epoch(updates)


def _size(source: Ints, target: Ints) -> BatchSize:
    return BatchSize(len(source), int(source.sum()), int(target.sum()), int(source.max()), int(target.max()))


def rehearse(updater: Updater, batches: TrainingBatches, *, copies_checkpoints: bool) -> Rehearsal:
    """``copies_checkpoints``: while one is written it takes memory beside training."""
    epoch, learner = read_epoch(batches), updater.learner
    device, world = learner.arithmetic.device, learner.world
    tries = _Tries(updater)
    largest = [_update(batches, number) for number in epoch.costliest()]
    peaks = []
    for parts in PARTS:
        logger.info("trying one part in %d of the largest batches", parts)
        give_back()
        for update in largest:
            tries.make(_smaller(update, parts))
        peaks.append(peak_memory(device))
    room = most_memory(device)
    copied = checkpoint_bytes(learner.step, learner.optimizer) if copies_checkpoints else 0
    quarter, half = peaks
    needed = half + 2 * (half - quarter) + copied
    needed, fits = max(world.gather(needed)), all(world.gather(room is None or needed <= room))
    if not fits:
        return Rehearsal(epoch, Memory(needed, True, room), None, 0)
    logger.info("trying the largest batches")
    give_back()
    for update in largest:
        tries.make(update)
    memory = Memory(max(world.gather(peak_memory(device) + copied)), False, room)
    middle = _update(batches, epoch.middle())
    tries.make(middle)  # what is done once for a shape of batches is done now
    return Rehearsal(epoch, memory, tries.make(middle), epoch.target_pieces[epoch.middle()])


class _Tries:
    """Makes updates as training does; none is kept."""

    def __init__(self, updater: Updater) -> None:
        self._updater = updater
        self._made = 0

    def make(self, batches: UpdateBatches) -> float:
        """The seconds that it took, all of the device's work included."""
        updater = self._updater
        began = time.perf_counter()
        self._made += 1
        updater.announce([batches])
        totals = updater.accumulate(self._made, batches)
        updater.launch(batches, totals, Progress(self._made, 1, 0, ()), began)
        updater.settle()
        if updater.learner.arithmetic.device.type == "cuda":
            torch.cuda.synchronize(updater.learner.arithmetic.device)
        return time.perf_counter() - began


def _update(batches: TrainingBatches, number: int) -> UpdateBatches:
    return batches.at(DataPosition(batch=number * batches.batches_in_update))


def _smaller(update: UpdateBatches, parts: int) -> UpdateBatches:
    """With one pair in so many of each batch."""
    return replace(update, batches=tuple(batch[::parts] for batch in update.batches))


def _described_memory(memory: Memory) -> str:
    found = f"{memory.needed / 1e9:.2f} GB a process"
    room = "" if memory.room is None else f", of {memory.room / 1e9:.1f} GB that it may have"
    return f"{found} (forecast){room}: {TOO_LARGE}" if memory.is_forecast else found + room


def _described_end(found: Rehearsal, limits: TrainingConfig, max_update: int | None) -> str:
    assert found.seconds is not None
    mean = sum(found.epoch.target_pieces) / len(found.epoch.updates)
    seconds = found.seconds * mean / max(1, found.pieces)  # of an update of mean size
    most, hours = limits.stop_time_hours, None if max_update is None else max_update * seconds / 3600
    if most is not None and (hours is None or most < hours):
        return f"about {most * 3600 / seconds:,.0f} updates in the {most:g} hours that are given"
    if max_update is None or hours is None:
        return "no limit is given; 1,000 updates take " + _hours(1000 * seconds / 3600)
    return f"{max_update:,} updates in {_hours(hours)}, without validations"


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"


def described(
    found: Rehearsal,
    *,
    model: str,
    data: str,
    limits: TrainingConfig,
    max_update: int | None,
    made_of: str | None = None,
) -> dict[str, str]:
    """What it comes to, in words, by what it is about. ``made_of``: the batches of an update whose size was given."""
    epoch, batches = found.epoch, found.epoch.batches
    pairs, pieces = sum(batch.pairs for batch in batches), sum(epoch.target_pieces)
    rows = {
        "model": model,
        "data": data,
        "an epoch": f"{len(epoch.updates):,} updates, {pairs:,} pairs, {pieces:,} target pieces",
        "batches": f"{len(batches):,}, in the mean of {pairs / len(batches):.1f} pairs; padding is {epoch.padding:.1%}",
        "the largest": str(epoch.largest),
        "memory": _described_memory(found.memory),
    }
    if made_of is not None:
        rows["in an update"] = made_of
    if found.seconds is not None:
        rate = found.pieces / found.seconds
        rows["an update"] = f"{found.seconds:.3f} seconds, {rate:,.0f} target pieces a second"
        rows["to the end"] = _described_end(found, limits, max_update)
    return rows
