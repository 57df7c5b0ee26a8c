"""Where training stands in its data, and batches on their way from the corpus to the device.

What comes next is a pure function of the position, so resuming is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from nmt.config.sections import BatchingConfig
from nmt.data.batch import ALIGNMENTS, Batch, collate, join_alignments
from nmt.data.batching import Indices, plan_batches
from nmt.data.corpus import Split
from nmt.data.readers import Readers
from nmt.data.variation import Part, Sentences, Variation, replaced
from nmt.data.vocabulary import Flags, Ints


@dataclass(frozen=True)
class DataPosition:
    """The next batch to train on: which epoch (from 1), and how many of its batches are behind."""

    epoch: int = 1
    batch: int = 0


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


class TrainingBatches:
    """The updates of a split. An update is made of consecutive batches and never spans two epochs. With several
    ``processes`` it has as many batches more; they are the same for all of them."""

    def __init__(
        self,
        split: Split,
        options: BatchingConfig,
        seed: int,
        processes: int = 1,
        variation: Variation | None = None,
        readers: int = 0,
    ) -> None:
        """``variation``: the text differs from epoch to epoch, and so many ``readers`` prepare it, within a ``with`` block
        of ``readers``."""
        self._split = split
        self._options = options
        self._variation = variation
        self.batches_in_update = options.update_freq * processes
        self.readers: Readers[Any, Any] = Readers(self._work, 0 if variation is None else readers)
        self.limits: Limits | None = None  # of the model; None: it reads what has a place in the corpus

        def plan(epoch: int) -> list[Indices]:
            source, target = split.source_lengths, split.target_lengths
            if variation is not None:
                source, target = variation.planned(epoch, options.token_limit, self._drawn_lengths(variation, epoch))
            return plan_batches(source, target, options, seed, epoch)

        # of the epochs asked for last: at the end of one the first updates of the next are announced
        self._plan = lru_cache(maxsize=1 if variation is None else 2)(plan)

    def at(self, position: DataPosition) -> UpdateBatches:
        plan, epoch = self._plan(position.epoch), position.epoch
        end = min(position.batch + self.batches_in_update, len(plan))
        following = DataPosition(epoch, end) if end < len(plan) else DataPosition(epoch + 1)
        batches = [Sentences(part, epoch, self._room(len(part))) for part in plan[position.batch : end]]
        return UpdateBatches(tuple(batches), epoch, following)

    def batch(self, sentences: Sentences) -> Batch:
        if self._variation is None:
            return read_batch(self._split, sentences.numbers)
        sources, targets = self.readers(sentences)
        if self.limits is not None:
            source_lengths, target_lengths = (np.array([*map(len, side)]) for side in (sources, targets))
            fits = self.limits(source_lengths, target_lengths)
            sources, targets = replaced(fits, (sources, targets), self._variation.usual(sentences))
        return collate(sources, targets, sentences.numbers.tolist())

    def _room(self, sentences: int) -> int | None:
        return None if self._variation is None else self._variation.room(self._options.token_limit, sentences)

    def _drawn_lengths(self, variation: Variation, epoch: int) -> list[Ints]:
        parts, found = variation.parts(epoch), list[Ints]()
        for place, part in enumerate(parts):
            self.readers.announce(parts[place : place + max(1, self.readers.ahead)])
            found.append(self.readers(part))
        return found

    def _work(self, task: Any) -> Any:
        """What readers do, for a part of an epoch or for the sentences of a batch."""
        assert self._variation is not None
        return self._variation.lengths(task) if isinstance(task, Part) else self._variation.read(task)

    def updates_in_epoch(self, epoch: int) -> int:
        return -(-len(self._plan(epoch)) // self.batches_in_update)


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
