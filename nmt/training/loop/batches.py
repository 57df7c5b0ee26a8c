"""The batches of each update, and their way from the corpus to the device.

The next batch is a pure function of the position in the data, so resuming is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config.sections import BatchingConfig
from nmt.data.batching.batch import ALIGNMENTS, WEIGHTS, Batch, collate, join_alignments
from nmt.data.batching.mixing import Stage
from nmt.data.batching.ordering import Order
from nmt.data.batching.plan import BatchPlan, plan_batches, split_batch
from nmt.data.batching.readers import Readers
from nmt.data.batching.variation import LengthPairs, PairRange, PlannedBatch, SideLimits, Variation, replace_unfit
from nmt.data.corpus.folder import Split
from nmt.data.corpus.lengths import Lengths
from nmt.data.vocabulary import Flags, Ids, Ints
from nmt.devices.kinds import Accelerator, device_of
from nmt.errors import DataError
from nmt.training.checkpoints.run_state import DataPosition


@dataclass(frozen=True)
class UpdateBatches:
    """The sentences of one update, by micro-batch, and the position after it."""

    batches: tuple[PlannedBatch, ...]
    epoch: int
    following: DataPosition

    @property
    def ends_epoch(self) -> bool:
        return self.following.epoch > self.epoch


Limits = Callable[[Ints, Ints], Flags]  # lengths of sources and of targets -> which pairs a model can read


@dataclass(frozen=True)
class PlannedEpoch:
    """The batches of an epoch, and the lengths of each side that they are planned for."""

    plan: BatchPlan
    sides: list[Lengths]


class TrainingBatches:
    """The updates of a split. An update consists of consecutive batches and never spans two epochs. With several
    ``processes`` it has that many times more batches, and all processes see the same list. A stage begins with a new epoch,
    and the rest of the epoch before is dropped."""

    def __init__(
        self,
        split: Split,
        options: BatchingConfig,
        seed: int,
        processes: int = 1,
        stages: Sequence[Stage] = (Stage(),),
        variation: Variation | None = None,
        readers: Readers[Any, Any] | None = None,
    ) -> None:
        """``variation``: the text differs from epoch to epoch; ``readers``: they prepare it; None: this process does."""
        self._split = split
        self._options = options
        self._seed = seed
        self.batches_in_update = options.accumulation(processes) * processes
        self.stages = stages
        self._variation = variation
        self.readers = readers_of(variation, 0) if readers is None else readers
        self.limits: Limits | None = None  # of the model; None: no limits
        self._planned: dict[DataPosition, PlannedEpoch] = {}  # the last ones, by their start
        self._starts = [(DataPosition(), 1)]  # of epochs, and their first updates, if none is skipped

    def at(self, position: DataPosition, update: int = 1) -> UpdateBatches:
        epoch = self.epoch(position)
        if position.batch >= len(epoch.plan):
            raise DataError(
                f"micro-batch {position.batch + 1} of epoch {position.epoch} does not exist: the epoch now has "
                f"{len(epoch.plan)} micro-batches, planned differently than before the checkpoint; restart the epoch "
                f"with --reset-dataloader, or choose another --save-dir"
            )
        end = min(position.batch + self.batches_in_update, len(epoch.plan))
        following = replace(position, batch=end)
        if end == len(epoch.plan):
            following = replace(position, epoch=position.epoch + 1, batch=0)
        batches = epoch.plan[position.batch : end]
        return UpdateBatches(
            tuple(part for batch in batches for part in self._parts(batch, epoch.sides, position.epoch)),
            position.epoch,
            self._in_due_stage(following, update + 1),
        )

    def batch(self, sentences: PlannedBatch) -> Batch:
        if self._variation is None:
            return read_batch(self._split, sentences.numbers)
        sources, targets = self.readers(sentences)
        if self.limits is not None:
            source_lengths, target_lengths = (np.array([*map(len, side)]) for side in (sources, targets))
            fits = self.limits(source_lengths, target_lengths)
            sources, targets = replace_unfit(fits, (sources, targets), self._variation.usual(sentences))
        numbers = sentences.numbers.tolist()
        return collate(sources, targets, numbers, _weights_of(self._split, numbers, targets), self._split.started)

    def start_of_epoch(self, epoch: int, update: int) -> DataPosition:
        return self._in_due_stage(DataPosition(epoch), update)

    def updates_in_epoch(self, epoch: int) -> int:
        """Count the updates of an epoch, if no earlier update is skipped: that would shift the beginning of a stage."""
        if len(self.stages) == 1:
            return self._updates_of(DataPosition(epoch), 1)
        while len(self._starts) < epoch + 1:
            position, update = self._starts[-1]
            made = self._updates_of(position, update)
            last = replace(position, batch=(made - 1) * self.batches_in_update)
            self._starts.append((self.at(last, update + made - 1).following, update + made))
        return self._starts[epoch][1] - self._starts[epoch - 1][1]

    def _updates_of(self, start: DataPosition, update: int) -> int:
        """Count the updates of the epoch that begins at ``start`` with this update: fewer if the next stage begins first."""
        count = -(-len(self.epoch(start).plan) // self.batches_in_update)
        following = self.stages[start.stage + 1 : start.stage + 2]
        return min([count, *(stage.from_update - update for stage in following if stage.from_update is not None)])

    def _in_due_stage(self, position: DataPosition, update: int) -> DataPosition:
        """Return the position before an update. If a stage begins with the update, an epoch begins with it too."""
        for stage in self.stages[position.stage + 1 :]:
            begins = position.epoch if position.batch == 0 else None
            if not stage.is_due(update, begins):
                break
            epoch = position.epoch + (position.batch > 0)
            position = DataPosition(epoch, stage=position.stage + 1, since=epoch)
        return position

    def epoch(self, position: DataPosition) -> PlannedEpoch:
        start = replace(position, batch=0)
        if start not in self._planned:
            # One large plan at a time, unless readers prepare the next epoch before the end of this one.
            kept = [*self._planned.items()][-1:] if self.readers.count else []
            self._planned = dict(kept)
            del kept
            lengths = self._lengths(position.epoch)
            plan = plan_batches(*lengths, self._options, self._seed, position.epoch, chosen=self._chosen(position))
            self._planned[start] = PlannedEpoch(plan, [side for side in lengths if side is not None])
        return self._planned[start]

    def _lengths(self, epoch: int) -> tuple[Lengths, Lengths | None]:
        """Return the lengths of sources and targets that the batches of an epoch are planned for."""
        if (variation := self._variation) is not None:
            return variation.planned_lengths(epoch, self._options.limits, self._drawn_lengths(variation, epoch))
        return self._split.source_lengths, self._split.target_lengths

    def _drawn_lengths(self, variation: Variation, epoch: int) -> Iterator[LengthPairs]:
        ranges = variation.ranges(epoch)
        for place, pairs in enumerate(ranges):
            self.readers.announce(ranges[place : place + max(1, self.readers.lookahead)])
            yield self.readers(pairs)

    def _chosen(self, position: DataPosition) -> Order | None:
        """Return the sentences of an epoch; None: all of them, once."""
        mixture = self.stages[position.stage].mixture
        return (
            None if mixture is None else mixture.draw(self._seed, position.stage, position.epoch - position.since + 1)
        )

    def _parts(self, batch: Ints, sides: Sequence[Lengths], epoch: int) -> list[PlannedBatch]:
        """Return the parts of a batch that are each computed at once."""
        most = self._options.max_padding
        parts = [batch] if most is None else split_batch(batch, sides, most)
        return [PlannedBatch(part, epoch, self._room(part, batch, sides)) for part in parts]

    def _room(self, part: Ints, batch: Ints, sides: Sequence[Lengths]) -> SideLimits:
        """What each pair of a part of a batch has room for. With a headroom it shares that of its batch; where padding does
        not count, a part has that of its pieces."""
        if self._variation is None:
            return None, None
        if self._variation.headroom is None:
            return self._options.limits
        is_even = self._options.count_padding or len(part) == len(batch)

        def room(side: Lengths, limit: int | None) -> int | None:
            if limit is None or is_even:
                return None if limit is None else limit // len(batch)
            return limit * int(side[part].sum()) // (int(side[batch].sum()) * len(part))

        source, target = map(room, sides, self._options.limits)
        return source, target


def readers_of(variation: Variation | None, count: int) -> Readers[Any, Any]:
    """Return ``count`` readers, which prepare text that varies within their ``with`` block."""
    return Readers(partial(_prepare, variation), 0 if variation is None else count)


def _prepare(variation: Variation | None, task: Any) -> Any:
    """Prepare a part of an epoch or the sentences of a batch."""
    assert variation is not None, "other text is read without a reader"
    return variation.lengths(task) if isinstance(task, PairRange) else variation.read(task)


def read_batch(split: Split, indices: Ints) -> Batch:
    numbers = indices.tolist()
    assert split.targets is not None, "datasets without targets are refused"
    targets = [split.targets[i] for i in numbers]
    extras = _weights_of(split, numbers, targets)
    if split.alignments is not None:
        extras[ALIGNMENTS] = join_alignments([split.alignments[i] for i in numbers])
    return collate([split.sources[i] for i in numbers], targets, numbers, extras, split.started)


def _weights_of(split: Split, numbers: Sequence[int], targets: Sequence[Ids]) -> dict[str, Tensor]:
    """Return the column of weights of the pairs of a batch; empty without weights."""
    if split.weights is None:
        return {}
    lengths = [len(target) - split.started for target in targets]
    rows = [np.broadcast_to(split.weights[number], length) for number, length in zip(numbers, lengths)]
    return {WEIGHTS: torch.from_numpy(np.concatenate(rows))}


class BatchReader:
    """Read a batch when it is needed, and move it to a device."""

    def __init__(
        self, read: Callable[[PlannedBatch], Batch], device: torch.device, readers: Readers[Any, Any] | None = None
    ) -> None:
        """``readers``: processes that prepare what ``read`` returns; announcements are passed on to them."""
        self.read = read  # to the CPU
        self.device = device
        self._readers = readers
        self.lookahead = 1 if readers is None else max(1, readers.lookahead)  # batches to announce at a time

    def announce(self, batches: Iterable[PlannedBatch], later: Iterable[PlannedBatch] = ()) -> None:
        """Announce the batches of the next update, in order, and those of updates after it (``later``)."""
        if self._readers is not None:
            self._readers.announce((*batches, *later))

    def __call__(self, sentences: PlannedBatch) -> Batch:
        return self.read(sentences).to(self.device)


Copied = tuple[Batch, torch.Event]  # a batch whose copy is on its way, and when it is done


class ReadAhead(BatchReader):
    """Read announced batches in a thread and copy them to a GPU while it computes: on a separate stream, from pinned memory.
    A batch that was not announced is read and copied at once."""

    def __init__(
        self,
        read: Callable[[PlannedBatch], Batch],
        device: Accelerator,
        readers: Readers[Any, Any] | None = None,
    ) -> None:
        super().__init__(read, device.device, readers)
        self._accelerator = device
        self._thread = ThreadPoolExecutor(1, "reading")
        self._coming: deque[tuple[PlannedBatch, Future[Copied]]] = deque()

    def announce(self, batches: Iterable[PlannedBatch], later: Iterable[PlannedBatch] = ()) -> None:
        batches = [*batches]
        super().announce(batches, later)
        self._coming.extend((sentences, self._thread.submit(self._begin, sentences)) for sentences in batches)

    def __call__(self, sentences: PlannedBatch) -> Batch:
        """Return a batch without waiting: kernels launched from now on wait for its copy."""
        batch, done = self._begun(sentences)
        self._accelerator.await_copy(done, batch.on_device())
        return batch

    def _begun(self, sentences: PlannedBatch) -> Copied:
        if not any(announced == sentences for announced, _ in self._coming):
            return self._begin(sentences)
        while True:
            announced, copied = self._coming.popleft()
            if announced == sentences:
                return copied.result()
            copied.cancel()  # it was skipped

    def _begin(self, sentences: PlannedBatch) -> Copied:
        batch = self.read(sentences)
        with self._accelerator.on_copying():
            return batch.to(self.device), self._accelerator.copying.record_event()


def batch_reader(
    read: Callable[[PlannedBatch], Batch],
    device: torch.device,
    readers: Readers[Any, Any] | None = None,
) -> BatchReader:
    """Return a reader that reads and copies ahead where a device can copy while it computes, and else a plain one."""
    kind = device_of(device)
    if isinstance(kind, Accelerator) and kind.copies_aside:
        return ReadAhead(read, kind, readers)
    return BatchReader(read, device, readers)
