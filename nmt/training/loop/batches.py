"""Where training stands in its data, and batches on their way from the corpus to the device.

What comes next is a pure function of the position, so resuming is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch

from nmt.config.sections import BatchingConfig
from nmt.data.batch import ALIGNMENTS, Batch, collate, join_alignments
from nmt.data.batching import Indices, plan_batches
from nmt.data.corpus import Split


@dataclass(frozen=True)
class DataPosition:
    """The next batch to train on: which epoch (from 1), and how many of its batches are behind."""

    epoch: int = 1
    batch: int = 0


@dataclass(frozen=True)
class UpdateBatches:
    """The sentences of one update, by micro-batch, and the position after it."""

    batches: tuple[Indices, ...]
    epoch: int
    following: DataPosition

    @property
    def ends_epoch(self) -> bool:
        return self.following.epoch > self.epoch


class TrainingBatches:
    """The updates of a split. An update is made of consecutive batches and never spans two epochs. With several
    ``processes`` it has as many batches more; they are the same for all of them."""

    def __init__(self, split: Split, options: BatchingConfig, seed: int, processes: int = 1) -> None:
        self._split = split
        self.batches_in_update = options.update_freq * processes
        plan = partial(plan_batches, split.source_lengths, split.target_lengths, options, seed)
        self._plan = lru_cache(maxsize=1)(plan)  # of the last epoch asked for

    def at(self, position: DataPosition) -> UpdateBatches:
        plan = self._plan(position.epoch)
        end = min(position.batch + self.batches_in_update, len(plan))
        following = DataPosition(position.epoch, end) if end < len(plan) else DataPosition(position.epoch + 1)
        return UpdateBatches(tuple(plan[position.batch : end]), position.epoch, following)

    def batch(self, indices: Indices) -> Batch:
        return read_batch(self._split, indices)

    def updates_in_epoch(self, epoch: int) -> int:
        return -(-len(self._plan(epoch)) // self.batches_in_update)


def read_batch(split: Split, indices: Indices) -> Batch:
    numbers, extras = indices.tolist(), {}
    if split.alignments is not None:
        extras[ALIGNMENTS] = join_alignments([split.alignments[i] for i in numbers])
    return collate([split.source(i) for i in numbers], [split.target(i) for i in numbers], numbers, extras)


class BatchReader:
    """Reads a batch when it is asked for."""

    def __init__(self, read: Callable[[Indices], Batch]) -> None:
        self.read = read  # on no card

    def announce(self, batches: Iterable[Indices]) -> None:
        """These will be asked for next, in this order."""

    def __call__(self, indices: Indices) -> Batch:
        return self.read(indices)


Copied = tuple[Batch, torch.cuda.Event]  # a batch whose copy is on its way, and when it is done


class ReadAhead(BatchReader):
    """Reads announced batches in a thread, and begins to copy them to a GPU, while that computes: on a stream of their own,
    out of memory that the GPU reads by itself. With what was not announced both happens on the spot."""

    def __init__(self, read: Callable[[Indices], Batch], device: torch.device) -> None:
        super().__init__(read)
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(1, "reading")
        self._coming: deque[tuple[Indices, Future[Copied]]] = deque()

    def announce(self, batches: Iterable[Indices]) -> None:
        self._coming.extend((indices, self._thread.submit(self._begin, indices)) for indices in batches)

    def __call__(self, indices: Indices) -> Batch:
        """What is launched from now on waits for the copy; nobody waits here."""
        batch, done = self._begun(indices)
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(done)
        for tensor in batch.on_device():
            tensor.record_stream(computing)  # its memory is the copying stream's, and not to be used again before
        return batch

    def _begun(self, indices: Indices) -> Copied:
        if not any(np.array_equal(announced, indices) for announced, _ in self._coming):
            return self._begin(indices)
        while True:
            announced, copied = self._coming.popleft()
            if np.array_equal(announced, indices):
                return copied.result()
            copied.cancel()  # it was passed over

    def _begin(self, indices: Indices) -> Copied:
        batch = self.read(indices)
        # Left to itself a new thread is on the first card, and would open it for every process.
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            return batch.pinned().to(self._device), self._stream.record_event()


def batch_reader(read: Callable[[Indices], Batch], device: torch.device) -> BatchReader:
    """For a GPU batches are read and copied ahead; on a CPU nothing would be gained."""
    return ReadAhead(read, device) if device.type == "cuda" else BatchReader(read)
