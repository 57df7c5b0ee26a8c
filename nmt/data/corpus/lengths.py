"""Lengths of the sentences of a corpus in tokens, computed from their offsets.

Memory does not grow with the corpus: sentences are processed in blocks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from nmt.data.vocabulary import Ids, Ints

BLOCK = 2**20  # sentences processed at a time: each array of them takes 8 MB


class Lengths(Protocol):
    """Lengths of sentences by their numbers, eos included. An array satisfies the protocol."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any:
        """Return the length of one sentence, or those of a slice or an array of numbers."""


def blocks(count: int) -> Iterator[slice]:
    """Yield consecutive blocks of ``count`` sentences."""
    for start in range(0, count, BLOCK):
        yield slice(start, min(start + BLOCK, count))


def length_counts(lengths: Lengths, numbers: Ids | None = None) -> Ints:
    """Count the sentences with 0, 1, 2 ... tokens: all of them, or those with these numbers."""
    counts = np.zeros(0, dtype=np.int64)
    for block in blocks(len(lengths if numbers is None else numbers)):
        more = np.bincount(lengths[block if numbers is None else numbers[block]])
        longer, shorter = (counts, more) if len(counts) >= len(more) else (more, counts)
        longer[: len(shorter)] += shorter
        counts = longer
    return counts


def percentile(counts: Ints, percent: float) -> float:
    """Return a percentile of lengths, interpolated as numpy does. ``counts[n]`` lengths are n; 0 if there are none."""
    if not counts.sum():
        return 0.0
    ends = np.cumsum(counts)
    place = percent * int(ends[-1] - 1) / 100
    low, high = np.searchsorted(ends, [math.floor(place), math.ceil(place)], side="right").tolist()
    return float(low + (high - low) * (place - math.floor(place)))


def longest(lengths: Lengths) -> int:
    """Return the length of the longest sentence; 0 if there are no sentences."""
    return max((int(lengths[block].max()) for block in blocks(len(lengths))), default=0)


class LazyLengths(Lengths):
    """Lengths that behave like an array, which is made only if all of them are read."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ints:
        return np.asarray(self[:], dtype=dtype)

    def max(self, initial: int = 0) -> int:
        return max(initial, longest(self))

    def sum(self) -> int:
        return sum(int(self[block].sum()) for block in blocks(len(self)))

    def tolist(self) -> list[int]:
        return [int(length) for length in self[:]]


class StoredLengths(LazyLengths):
    """Lengths of stored sentences: the differences of their ``offsets``."""

    def __init__(self, offsets: Ids) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any, /) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return np.diff(self._offsets[start : max(start, stop) + 1]).astype(np.int64, copy=False)
        return self._offsets[1:][index] - self._offsets[:-1][index]


class ChainedLengths(LazyLengths):
    """The concatenated lengths of several parts."""

    def __init__(self, parts: Sequence[Lengths]) -> None:
        self._parts = parts

    @functools.cached_property
    def starts(self) -> Ints:
        """The number of the first sentence of each part, and the number of sentences."""
        return np.cumsum([0, *map(len, self._parts)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, index: Any, /) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            firsts = self.starts.tolist()
            spans = [(max(start - first, 0), max(stop - first, 0)) for first in firsts[:-1]]
            return np.concatenate([np.asarray(part[low:high]) for part, (low, high) in zip(self._parts, spans)])
        index = np.asarray(index)
        lengths = np.empty(index.shape, dtype=np.int64)
        for part, first, end in zip(self._parts, self.starts.tolist(), self.starts[1:].tolist()):
            inside = (index >= first) & (index < end)
            lengths[inside] = part[index[inside] - first]
        return lengths


class LongerSide(LazyLengths):
    """The length of the longer side of each sentence pair."""

    def __init__(self, sides: Sequence[Lengths]) -> None:
        self._sides = sides

    def __len__(self) -> int:
        return len(self._sides[0])

    def __getitem__(self, index: Any, /) -> Any:
        return functools.reduce(np.maximum, (side[index] for side in self._sides))
