"""Forecast the time and memory of a run from updates that are made as a trial and thrown away.

At the start of a run, a copy of the model makes passes over growing parts of one batch until their times can be trusted,
which takes one or two seconds on a CPU. ``nmt-train --dry-run`` makes the largest updates of the first epoch instead: with a
quarter of each batch, with a half, and with the whole if the line through these two memory peaks says that it will fit.
``--max-tokens auto`` (token_budget.py) uses the same ``Trial`` and the same choice of the costliest batches.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from nmt.config.sections import TrainConfig
from nmt.data.corpus.folder import Split
from nmt.data.vocabulary import Ints
from nmt.devices.kinds import device_of
from nmt.distributed.world import World
from nmt.errors import quantity
from nmt.optim import Progress
from nmt.reporting.resources import give_back, most_memory, peak_memory
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.loop.batches import TrainingBatches, UpdateBatches, read_batch
from nmt.training.loop.learner import Arithmetic, Step, seed_torch
from nmt.training.loop.learner_state import checkpoint_bytes
from nmt.training.loop.optimizer_state import training_mode
from nmt.training.loop.updater import Updater
from nmt.training.setup.datasets import sides
from nmt.training.setup.parts import build_optimizer, save_memory

logger = logging.getLogger("nmt.training")

LEAST_UPDATES = 50  # a shorter run shows the time left after its first updates
TRUSTED = 0.2  # seconds of a pass
PATIENCE = 5.0  # seconds, after which no larger part is tried
PARTS = (16, 8, 4, 2, 1)  # the trial takes every 16th pair of a batch, every 8th ...
PARTS_OF_LARGEST = (4, 2)  # of the largest batches, before the whole
LOOKED_AT = 32  # updates of the first epoch
TRIAL_SEED = 2**32 - 5  # instead of an update's number


@dataclass(frozen=True)
class Forecast:
    """Time, memory and disk of one process, at the current load of the machine."""

    seconds: float | None  # of an update of mean size; None: not tried, because memory is short
    memory: int  # bytes while the largest batch is computed
    checkpoint: int  # bytes
    room: int | None = None  # bytes that the process may hold; None: unknown
    is_measured: bool = False  # the largest batches were computed
    expected: int | None = None  # bytes forecast from parts of the largest batches


@dataclass(frozen=True)
class BatchSize:
    """The size of a batch, or of the part of one that is computed at once."""

    pairs: int
    source_pieces: int
    target_pieces: int
    longest_source: int
    longest_target: int

    @classmethod
    def of(cls, source: Ints, target: Ints) -> BatchSize:
        """``source``, ``target``: the lengths of each side."""
        return cls(len(source), int(source.sum()), int(target.sum()), int(source.max()), int(target.max()))

    @property
    def places(self) -> int:
        """Tokens of both sides, padding included."""
        return self.pairs * (self.longest_source + self.longest_target)

    def __str__(self) -> str:
        return (
            f"{quantity(self.pairs, 'pair')} of up to {self.longest_source} source and {self.longest_target} target tokens "
            f"({self.places:,} with padding)"
        )


# Different layers take most memory for different batches.
COSTS: tuple[Callable[[BatchSize], int], ...] = (
    lambda size: size.places,
    lambda size: size.source_pieces + size.target_pieces,
    lambda size: size.pairs * max(size.longest_source, size.longest_target) ** 2,
    lambda size: size.pairs,
)


def costliest(sizes: Sequence[BatchSize]) -> list[int]:
    """Return the numbers of the batches that may take most memory, in ascending order."""
    return sorted({max(range(len(sizes)), key=lambda number: cost(sizes[number])) for cost in COSTS})


@dataclass(frozen=True)
class EpochSizes:
    """The sizes of the batches of an epoch, by update."""

    updates: list[list[BatchSize]]

    @classmethod
    def first(cls, batches: TrainingBatches) -> EpochSizes:
        """Return the sizes of the first epoch."""
        source, target = batches.epoch(DataPosition()).sides
        updates = (_update(batches, number) for number in range(batches.updates_in_epoch(1)))
        return cls([[BatchSize.of(source[part.numbers], target[part.numbers]) for part in u.batches] for u in updates])

    @property
    def batches(self) -> list[BatchSize]:
        return [batch for update in self.updates for batch in update]

    @property
    def target_pieces(self) -> list[int]:
        return [sum(batch.target_pieces for batch in update) for update in self.updates]

    @property
    def padding(self) -> float:
        """The share of padding among all places."""
        pieces = sum(batch.source_pieces + batch.target_pieces for batch in self.batches)
        return 1 - pieces / max(1, sum(batch.places for batch in self.batches))

    @property
    def largest(self) -> BatchSize:
        return max(self.batches, key=lambda batch: batch.places)

    def costliest(self) -> list[int]:
        """Return the numbers of the updates with the costliest batches."""
        update_of = [number for number, update in enumerate(self.updates) for _ in update]
        return sorted({update_of[number] for number in costliest(self.batches)})

    def middle(self) -> int:
        """Return the number of the update with the median of the target tokens."""
        pieces = self.target_pieces
        return int(np.argsort(pieces, kind="stable")[len(pieces) // 2])


class Trial:
    """Make passes and updates of a model that is thrown away. After the first update the optimizer holds its state."""

    def __init__(self, config: TrainConfig, step: Step, train: Split, arithmetic: Arithmetic) -> None:
        self.device = arithmetic.device
        self._seed, self._train, self._arithmetic, self._step = config.seed, train, arithmetic, step
        save_memory(config, step.model)
        self.optimizer = build_optimizer(config, step)
        training_mode(self.optimizer)
        self.update([np.arange(1)])
        self.checkpoint = checkpoint_bytes(step, self.optimizer)

    def update(self, batches: Sequence[Ints]) -> None:
        self.passes(batches)
        self.optimizer.step()

    def passes(self, batches: Sequence[Ints]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for indices in batches:
            seed_torch(self._seed, TRIAL_SEED)
            with self._arithmetic.forward_pass():
                loss = self._step(read_batch(self._train, indices).to(self.device)).loss_sum
            loss.backward()


def forecast(
    config: TrainConfig, step: Step, batches: TrainingBatches, train: Split, arithmetic: Arithmetic, processes: int
) -> Forecast:
    """Return the forecast. A copy of ``step`` computes, and random generators are restored, so training is unaffected."""
    updates = [[part.numbers for part in update.batches] for update in _some_updates(batches)]
    numbers_of = {_places(train, numbers): numbers for update in updates for numbers in update}
    cards = [] if arithmetic.device.type == "cpu" else [arithmetic.device]
    with torch.random.fork_rng(cards, device_type=arithmetic.device.type):
        began = time.perf_counter()
        copied = copy.deepcopy(step).train()
        trial = Trial(config, copied, train, arithmetic)
        optimizer_seconds = _seconds(trial.optimizer.step, trial.device)
        typical = numbers_of[sorted(numbers_of)[len(numbers_of) // 2]]
        times, peaks = _growing(trial, typical, train, began + PATIENCE)
    of_batch, of_place = line(times)
    passes = sum(of_batch + of_place * _places(train, numbers) for update in updates for numbers in update)
    tried, peak = peaks[-1]
    memory = peak + line(peaks)[1] * max(0, max(numbers_of) - tried)
    memory -= sum(parameter.nbytes for parameter in copied.parameters())
    copies = config.checkpoint.asynchronous and arithmetic.device.type == "cpu"  # while a checkpoint is written
    return Forecast(
        seconds=passes / len(updates) / processes + optimizer_seconds,
        memory=int(memory) + copies * trial.checkpoint,
        checkpoint=trial.checkpoint,
        room=most_memory(arithmetic.device),
    )


def _growing(
    trial: Trial, numbers: Ints, train: Split, until: float
) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Make passes over larger and larger parts of a batch until the times of the last two can be trusted. Return the seconds
    and the memory peak of each part, with its places."""
    times, peaks = list[tuple[int, float]](), list[tuple[int, float]]()
    for parts in PARTS:
        part = numbers[::parts]
        places = _places(train, part)
        if times and places <= times[-1][0]:
            continue
        give_back(trial.device)
        trial.passes([part])
        peaks.append((places, float(peak_memory(trial.device))))
        times.append((places, _seconds(partial(trial.passes, [part]), trial.device)))
        is_trusted = len(times) > 1 and times[-2][1] >= TRUSTED
        if is_trusted or time.perf_counter() > until:
            break
    return times, peaks


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope through the last two points, neither negative."""
    x, y = points[-1]
    slope = y / x
    if len(points) > 1:
        x_before, y_before = points[-2]
        slope = min(slope, max(0.0, (y - y_before) / (x - x_before)))
    return y - slope * x, slope


def try_forecast(
    config: TrainConfig,
    step: Step,
    batches: TrainingBatches,
    train: Split,
    arithmetic: Arithmetic,
    world: World,
    updates_left: int | None = None,
) -> Forecast | None:
    """Return ``forecast``. If it cannot be computed, log why and return None: training must not depend on it.

    ``updates_left``: updates until the end of the run; None: unknown. A short run gets no forecast."""
    if updates_left is not None and updates_left < LEAST_UPDATES:
        return None
    if world.divides:  # a model that is trained in parts may not fit on one device twice
        logger.info("no forecast: it needs a copy of the whole model, and with fsdp each rank has only a part")
        return None
    try:
        return forecast(config, step, batches, train, arithmetic, world.size)
    except Exception as error:  # a model that cannot be copied, no memory for the copy
        logger.info("no forecast: %s", error)
        return None
    finally:
        give_back(arithmetic.device)  # the copy is no part of the run


def forecast_by_largest(
    updater: Updater, batches: TrainingBatches, epoch: EpochSizes, *, copies_checkpoints: bool
) -> Forecast:
    """Return the forecast of the largest updates, by the run's own updater; all ranks call this together.
    ``copies_checkpoints``: while a checkpoint is written, a copy of it takes memory."""
    learner = updater.learner
    device, world = learner.arithmetic.device, learner.world
    largest = [_update(batches, number) for number in epoch.costliest()]
    peaks = list[tuple[float, float]]()
    for parts in PARTS_OF_LARGEST:
        logger.info("trying one part in %d of the largest micro-batches", parts)
        smaller = [replace(update, batches=tuple(batch[::parts] for batch in update.batches)) for update in largest]
        peaks.append((1 / parts, float(_peak(updater, smaller))))
    room, checkpoint = most_memory(device), checkpoint_bytes(learner.step, learner.optimizer)
    copied = checkpoint if copies_checkpoints else 0
    expected = int(sum(line(peaks))) + copied
    memory, fits = max(world.gather(expected)), all(world.gather(room is None or expected <= room))
    if not fits:
        return Forecast(None, memory, checkpoint, room, expected=memory)
    logger.info("trying the largest micro-batches")
    measured = max(world.gather(_peak(updater, largest) + copied))
    middle = epoch.middle()
    try_update(updater, _update(batches, middle))  # work that is done once for each shape
    seconds = try_update(updater, _update(batches, middle))
    mean_size = sum(epoch.target_pieces) / len(epoch.updates)
    seconds *= mean_size / max(1, epoch.target_pieces[middle])
    return Forecast(seconds, measured, checkpoint, room, is_measured=True, expected=memory)


def try_update(updater: Updater, batches: UpdateBatches) -> float:
    """Make an update as training does. Return its seconds, with all work of the device."""

    def update() -> None:
        updater.announce([batches])
        sums = updater.accumulate(1, batches)
        updater.launch(batches, sums, Progress(1, 1, 0, ()), time.monotonic())
        updater.settle()

    return _seconds(update, updater.learner.arithmetic.device)


def _peak(updater: Updater, updates: Sequence[UpdateBatches]) -> int:
    device = updater.learner.arithmetic.device
    give_back(device)
    for update in updates:
        try_update(updater, update)
    return peak_memory(device)


def _update(batches: TrainingBatches, number: int) -> UpdateBatches:
    """Return an update of the first epoch."""
    return batches.at(DataPosition(batch=number * batches.batches_in_update))


def _some_updates(batches: TrainingBatches) -> list[UpdateBatches]:
    """Return updates spread over the first epoch, with the batches of all processes."""
    count = batches.updates_in_epoch(1)
    numbers = np.unique(np.linspace(0, count - 1, min(count, LOOKED_AT)).astype(int)).tolist()
    return [_update(batches, number) for number in numbers]


def _places(train: Split, numbers: Ints) -> int:
    source, target = sides(train)
    return BatchSize.of(source[numbers], target[numbers]).places


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the duration of ``work``, with all work of the device."""
    device_of(device).synchronize()
    began = time.perf_counter()
    work()
    device_of(device).synchronize()
    return time.perf_counter() - began
