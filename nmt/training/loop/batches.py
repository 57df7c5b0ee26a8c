"""Where training stands in its data, and batches on their way from the corpus to the device.

What comes next is a pure function of the position, so resuming is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from nmt.config.sections import BatchingConfig
from nmt.data.batch import ALIGNMENTS, Batch, collate, join_alignments
from nmt.data.batching import BatchPlan, Indices, parts_of, plan_batches
from nmt.data.corpus import Split
from nmt.data.lengths import Lengths
from nmt.data.mixing import Stage
from nmt.data.ordering import Order
from nmt.data.readers import Readers
from nmt.data.variation import Part, Room, Sentences, ShortInts, Variation, replaced
from nmt.data.vocabulary import Flags, Ints


@dataclass(frozen=True)
class DataPosition:
    """The next batch to train on: which epoch (from 1), and how many of its batches are behind; and which stage of
    training, which began with the epoch ``since``."""

    epoch: int = 1
    batch: int = 0
    stage: int = 0
    since: int = 1


@dataclass(frozen=True)
class UpdateBatches:
    """The sentences of one update, by micro-batch, and the position after it."""

    batches: tuple[Sentences, ...]
    epoch: int
    following: DataPosition

    @property
    def ends_epoch(self) -> bool:
        return self.following.epoch > self.epoch


Limits = Callable[[Ints, Ints], Flags]  # lengths of sources and of targets -> which pairs a model can read


@dataclass(frozen=True)
class _Epoch:
    """The batches of an epoch, and the lengths of each side that they are planned for."""

    plan: BatchPlan
    sides: list[Lengths]


class TrainingBatches:
    """The updates of a split. An update is made of consecutive batches and never spans two epochs. With several
    ``processes`` it has as many batches more; they are the same for all of them. A stage begins with an epoch of its own:
    what is left of the one before is left out."""

    def __init__(
        self,
        split: Split,
        options: BatchingConfig,
        seed: int,
        processes: int = 1,
        stages: Sequence[Stage] = (Stage(),),
        variation: Variation | None = None,
        readers: int = 0,
    ) -> None:
        """``variation``: the text differs from epoch to epoch, and so many ``readers`` prepare it, within a ``with`` block
        of ``readers``."""
        self._split = split
        self._options = options
        self._seed = seed
        self.batches_in_update = options.accumulation(processes) * processes
        self.stages = stages
        self._variation = variation
        self.readers: Readers[Any, Any] = Readers(self._work, 0 if variation is None else readers)
        self.limits: Limits | None = None  # of the model; None: it reads what has a place in the corpus
        self._planned: dict[DataPosition, _Epoch] = {}  # those asked for last, by where they begin
        self._starts = [(DataPosition(), 1)]  # of epochs, and their first updates, if none is skipped

    def at(self, position: DataPosition, update: int = 1) -> UpdateBatches:
        """What the ``update`` of this number is made of."""
        plan = self._plan(position)
        end = min(position.batch + self.batches_in_update, len(plan))
        following = replace(position, batch=end)
        if end == len(plan):
            following = replace(position, epoch=position.epoch + 1, batch=0)
        return UpdateBatches(
            tuple(part for batch in plan[position.batch : end] for part in self._parts(batch, position)),
            position.epoch,
            self._in_due_stage(following, update + 1),
        )

    def batch(self, sentences: Sentences) -> Batch:
        if self._variation is None:
            return read_batch(self._split, sentences.numbers)
        sources, targets = self.readers(sentences)
        if self.limits is not None:
            source_lengths, target_lengths = (np.array([*map(len, side)]) for side in (sources, targets))
            fits = self.limits(source_lengths, target_lengths)
            sources, targets = replaced(fits, (sources, targets), self._variation.usual(sentences))
        return collate(sources, targets, sentences.numbers.tolist())

    def _work(self, task: Any) -> Any:
        """What readers do, for a part of an epoch or for the sentences of a batch."""
        assert self._variation is not None
        return self._variation.lengths(task) if isinstance(task, Part) else self._variation.read(task)

    def start_of_epoch(self, epoch: int, update: int) -> DataPosition:
        """Where an epoch begins that begins with this update, whatever came before."""
        return self._in_due_stage(DataPosition(epoch), update)

    def updates_in_epoch(self, epoch: int) -> int:
        """If no update before is skipped, which would shift the beginning of a stage."""
        if len(self.stages) == 1:
            return self._updates_left(DataPosition(epoch), 1)
        while len(self._starts) < epoch + 1:
            position, update = self._starts[-1]
            made = self._updates_left(position, update)
            last = replace(position, batch=(made - 1) * self.batches_in_update)
            self._starts.append((self.at(last, update + made - 1).following, update + made))
        return self._starts[epoch][1] - self._starts[epoch - 1][1]

    def _updates_left(self, position: DataPosition, update: int) -> int:
        """Of an epoch that begins there with this update."""
        count = -(-len(self._plan(position)) // self.batches_in_update)
        following = self.stages[position.stage + 1 : position.stage + 2]
        return min([count, *(stage.from_update - update for stage in following if stage.from_update is not None)])

    def _in_due_stage(self, position: DataPosition, update: int) -> DataPosition:
        """The position before an update, if a stage begins with that: in an epoch that begins there too."""
        for stage in self.stages[position.stage + 1 :]:
            begins = position.epoch if position.batch == 0 else None
            if not stage.is_due(update, begins):
                break
            epoch = position.epoch + (position.batch > 0)
            position = DataPosition(epoch, stage=position.stage + 1, since=epoch)
        return position

    def _plan(self, position: DataPosition) -> BatchPlan:
        return self._epoch(position).plan

    def _epoch(self, position: DataPosition) -> _Epoch:
        start = replace(position, batch=0)
        if start not in self._planned:
            # Two large plans need not be there at once, unless readers are told of the next epoch at the end of one.
            kept = [*self._planned.items()][-1:] if self.readers.count else []
            self._planned = dict(kept)
            del kept
            lengths = self._lengths(position.epoch)
            plan = plan_batches(*lengths, self._options, self._seed, position.epoch, chosen=self._chosen(position))
            self._planned[start] = _Epoch(plan, [side for side in lengths if side is not None])
        return self._planned[start]

    def sides(self, position: DataPosition) -> list[Lengths]:
        """The lengths of each side that the batches of this epoch are planned for."""
        return self._epoch(position).sides

    def _lengths(self, epoch: int) -> tuple[Lengths, Lengths | None]:
        """Of the sources and the targets, as batches of an epoch are planned for them."""
        if (variation := self._variation) is not None:
            return variation.planned_lengths(epoch, self._options.limits, self._drawn_lengths(variation, epoch))
        return self._split.source_lengths, self._split.target_lengths

    def _drawn_lengths(self, variation: Variation, epoch: int) -> Iterator[ShortInts]:
        parts = variation.parts(epoch)
        for place, part in enumerate(parts):
            self.readers.announce(parts[place : place + max(1, self.readers.ahead)])
            yield self.readers(part)

    def _chosen(self, position: DataPosition) -> Order | None:
        """The sentences of an epoch; None: all of them, once."""
        mixture = self.stages[position.stage].mixture
        return (
            None if mixture is None else mixture.draw(self._seed, position.stage, position.epoch - position.since + 1)
        )

    def _parts(self, batch: Indices, position: DataPosition) -> list[Sentences]:
        """What is computed at once."""
        sides, parts, most = self.sides(position), [batch], self._options.max_padding
        if most is not None:
            parts = parts_of(batch, sides, most)
        return [Sentences(part, position.epoch, self._room(part, batch, sides)) for part in parts]

    def _room(self, part: Indices, batch: Indices, sides: Sequence[Lengths]) -> Room:
        """What each pair of a part of a batch has room for. With a headroom it shares that of its batch; where padding does
        not count, a part has that of its pieces."""
        if self._variation is None:
            return None, None
        if self._variation.headroom is None:
            return self._options.limits
        room: list[int | None] = [
            None
            if limit is None
            else limit // len(batch)
            if self._options.count_padding or len(part) == len(batch)
            else limit * int(side[part].sum()) // (int(side[batch].sum()) * len(part))
            for side, limit in zip(sides, self._options.limits)
        ]
        return room[0], room[1]


def read_batch(split: Split, indices: Indices) -> Batch:
    numbers, extras = indices.tolist(), {}
    if split.alignments is not None:
        extras[ALIGNMENTS] = join_alignments([split.alignments[i] for i in numbers])
    return collate([split.source(i) for i in numbers], [split.target(i) for i in numbers], numbers, extras)


class BatchReader:
    """Reads a batch when it is asked for."""

    def __init__(self, read: Callable[[Sentences], Batch], readers: Readers[Any, Any] | None = None) -> None:
        """``readers``: they prepare what ``read`` returns, and are told of all that is announced."""
        self.read = read  # on no card
        self._readers = readers
        self.ahead = 1 if readers is None else max(1, readers.ahead)  # batches that should be announced at a time

    def announce(self, batches: Iterable[Sentences], later: Iterable[Sentences] = ()) -> None:
        """These will be asked for next, in this order, and those of updates after the next ``later``."""
        if self._readers is not None:
            self._readers.announce((*batches, *later))

    def __call__(self, sentences: Sentences) -> Batch:
        return self.read(sentences)


Copied = tuple[Batch, torch.cuda.Event]  # a batch whose copy is on its way, and when it is done


class ReadAhead(BatchReader):
    """Reads announced batches in a thread, and begins to copy them to a GPU, while that computes: on a stream of their own,
    out of memory that the GPU reads by itself. With what was not announced both happens on the spot."""

    def __init__(
        self,
        read: Callable[[Sentences], Batch],
        device: torch.device,
        readers: Readers[Any, Any] | None = None,
    ) -> None:
        super().__init__(read, readers)
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(1, "reading")
        self._coming: deque[tuple[Sentences, Future[Copied]]] = deque()

    def announce(self, batches: Iterable[Sentences], later: Iterable[Sentences] = ()) -> None:
        batches = [*batches]
        super().announce(batches, later)
        self._coming.extend((sentences, self._thread.submit(self._begin, sentences)) for sentences in batches)

    def __call__(self, sentences: Sentences) -> Batch:
        """What is launched from now on waits for the copy; nobody waits here."""
        batch, done = self._begun(sentences)
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(done)
        for tensor in batch.on_device():
            tensor.record_stream(computing)  # its memory is the copying stream's, and not to be used again before
        return batch

    def _begun(self, sentences: Sentences) -> Copied:
        if not any(announced == sentences for announced, _ in self._coming):
            return self._begin(sentences)
        while True:
            announced, copied = self._coming.popleft()
            if announced == sentences:
                return copied.result()
            copied.cancel()  # it was passed over

    def _begin(self, sentences: Sentences) -> Copied:
        batch = self.read(sentences)
        # Left to itself a new thread is on the first card, and would open it for every process.
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            return batch.pinned().to(self._device), self._stream.record_event()


def batch_reader(
    read: Callable[[Sentences], Batch],
    device: torch.device,
    readers: Readers[Any, Any] | None = None,
) -> BatchReader:
    """For a GPU batches are read and copied ahead; on a CPU nothing would be gained."""
    return ReadAhead(read, device, readers) if device.type == "cuda" else BatchReader(read, readers)
