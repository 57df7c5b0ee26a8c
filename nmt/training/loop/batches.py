"""Where training stands in its data. What comes next is a pure function of the position, so resuming is exact."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from nmt.config.sections import BatchingConfig
from nmt.data.batch import ALIGNMENTS, Batch, collate, join_alignments
from nmt.data.batching import Indices, plan_batches
from nmt.data.corpus import Split


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


Read = Callable[[Indices], Batch]


class Reader:
    """Reads a batch when it is asked for."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def plain(self, indices: Indices) -> Batch:
        """The batch as it is read, on no card."""
        return self._read(indices)

    def announce(self, batches: Iterable[Indices]) -> None:
        """These will be asked for next, in this order."""

    def __call__(self, indices: Indices) -> Batch:
        return self._read(indices)


@dataclass(frozen=True)
class Copied:
    """A batch whose copy is on its way."""

    batch: Batch
    done: torch.cuda.Event


class Card:
    """Copies batches to a GPU while it computes: on a stream of their own, out of memory that it reads by itself."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def begin(self, batch: Batch) -> Copied:
        # Left to itself a new thread is on the first card, and would open it for every process.
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            return Copied(batch.pinned().to(self._device), self._stream.record_event())

    def end(self, copied: Copied) -> Batch:
        """What is launched from now on waits for the copy; nobody waits here."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(copied.done)
        for tensor in copied.batch.on_device():
            tensor.record_stream(computing)  # its memory is the copying stream's, and not to be used again before
        return copied.batch


class ReadAhead(Reader):
    """Reads announced batches in a thread, and begins to copy them to the card, while that computes.

    With what was not announced both happens on the spot.
    """

    def __init__(self, read: Read, card: Card) -> None:
        super().__init__(read)
        self._card = card
        self._thread = ThreadPoolExecutor(1, "reading")
        self._coming: deque[tuple[Indices, Future[Copied]]] = deque()

    def announce(self, batches: Iterable[Indices]) -> None:
        self._coming.extend((indices, self._thread.submit(self._begin, indices)) for indices in batches)

    def __call__(self, indices: Indices) -> Batch:
        return self._card.end(self._begun(indices))

    def _begun(self, indices: Indices) -> Copied:
        if not any(np.array_equal(announced, indices) for announced, _ in self._coming):
            return self._begin(indices)
        while True:
            announced, copied = self._coming.popleft()
            if np.array_equal(announced, indices):
                return copied.result()
            copied.cancel()  # it was passed over

    def _begin(self, indices: Indices) -> Copied:
        return self._card.begin(self._read(indices))


def reader(read: Read, device: torch.device) -> Reader:
    """For a GPU batches are read and copied ahead; on a CPU nothing would be gained."""
    return Reader(read) if device.type != "cuda" else ReadAhead(read, Card(device))
