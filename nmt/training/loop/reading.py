"""Batches on their way from the corpus to the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from nmt.data.batch import Batch
from nmt.data.batching import Indices

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
