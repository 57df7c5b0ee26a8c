"""How many pieces the sentences of a corpus have, read off where they begin.

Nothing here grows with the corpus: a corpus of any size is looked at in blocks of sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from nmt.data.vocabulary import Ids, Ints

BLOCK = 2**20  # sentences looked at together: each array of them takes 8 MB


class Lengths(Protocol):
    """The lengths of some sentences by their numbers, eos included. An array is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any:
        """Of one sentence, of a slice, or of an array of numbers."""


def blocks(count: int) -> Iterator[slice]:
    """Consecutive parts of ``count`` sentences."""
    for start in range(0, count, BLOCK):
        yield slice(start, min(start + BLOCK, count))


def length_counts(lengths: Lengths, numbers: Ids | None = None) -> Ints:
    """How many sentences have 0, 1, 2 ... pieces, up to the most that one has: all of them, or those with these numbers."""
    counts = np.zeros(0, dtype=np.int64)
    for block in blocks(len(lengths if numbers is None else numbers)):
        more = np.bincount(lengths[block if numbers is None else numbers[block]])
        longer, shorter = (counts, more) if len(counts) >= len(more) else (more, counts)
        longer[: len(shorter)] += shorter
        counts = longer
    return counts


def longest(lengths: Lengths) -> int:
    """The most pieces of a sentence; 0 if there is none."""
    return max((int(lengths[block].max()) for block in blocks(len(lengths))), default=0)


class ReadOff:
    """What an array of the lengths could do; such an array is made only where somebody asks for all of them."""

    def __getitem__(self, index: Any, /) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ints:
        return np.asarray(self[:], dtype=dtype)

    def max(self, initial: int = 0) -> int:
        return max(initial, longest(self))

    def sum(self) -> int:
        return sum(int(self[block].sum()) for block in blocks(len(self)))

    def tolist(self) -> list[int]:
        return [int(length) for length in self[:]]


class StoredLengths(ReadOff):
    """Of sentences that lie one after the other: the differences of their ``offsets``."""

    def __init__(self, offsets: Ids) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any, /) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return np.diff(self._offsets[start : max(start, stop) + 1]).astype(np.int64, copy=False)
        return self._offsets[1:][index] - self._offsets[:-1][index]


class ChainedLengths(ReadOff):
    """Of the sentences of several parts, one part after the other."""

    def __init__(self, parts: Sequence[Lengths]) -> None:
        self._parts = parts

    @cached_property
    def starts(self) -> Ints:
        """The number of the first sentence of each part, and of all sentences."""
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
        found = np.empty(index.shape, dtype=np.int64)
        for part, first, end in zip(self._parts, self.starts.tolist(), self.starts[1:].tolist()):
            inside = (index >= first) & (index < end)
            found[inside] = part[index[inside] - first]
        return found


class LongerSide(ReadOff):
    """Of each sentence pair, the length of its longer side."""

    def __init__(self, sides: Sequence[Lengths]) -> None:
        self._sides = sides

    def __len__(self) -> int:
        return len(self._sides[0])

    def __getitem__(self, index: Any, /) -> Any:
        first, *others = (side[index] for side in self._sides)
        for other in others:
            first = np.maximum(first, other)
        return first
