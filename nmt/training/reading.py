"""Batches on their way from the corpus to the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from nmt.data.batch import Batch
from nmt.data.batching import Indices

Read = Callable[[Indices], Batch]


class Reader:
    """Reads a batch when it is asked for."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def announce(self, batches: Iterable[Indices]) -> None:
        """These will be asked for next, in this order."""

    def __call__(self, indices: Indices) -> Batch:
        return self._read(indices)


class ReadAhead(Reader):
    """Reads announced batches in a thread, while the device computes. What was not announced is read on the spot."""

    def __init__(self, read: Read) -> None:
        super().__init__(read)
        self._thread = ThreadPoolExecutor(1, "reading")
        self._coming: deque[tuple[Indices, Future[Batch]]] = deque()

    def announce(self, batches: Iterable[Indices]) -> None:
        self._coming.extend((indices, self._thread.submit(self._read, indices)) for indices in batches)

    def __call__(self, indices: Indices) -> Batch:
        if not any(np.array_equal(announced, indices) for announced, _ in self._coming):
            return self._read(indices)
        while True:
            announced, batch = self._coming.popleft()
            if np.array_equal(announced, indices):
                return batch.result()
            batch.cancel()  # it was passed over


def reader(read: Read, device: torch.device) -> Reader:
    """For a GPU batches are read ahead, into memory that it copies from by itself; on a CPU nothing would be gained."""
    if device.type != "cuda":
        return Reader(read)
    return ReadAhead(lambda indices: read(indices).pinned())
