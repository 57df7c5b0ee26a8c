"""Orders of sentences, random and by length. An order takes four bytes a sentence, and its computation about as much
again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.corpus.lengths import Lengths, blocks, length_counts
from nmt.data.vocabulary import Ints

Order = npt.NDArray[np.unsignedinteger[Any]]  # numbers of sentences, in 4 or 8 bytes

GROUP = 2**21  # sentences whose random numbers are sorted at a time
MOST_GROUPS = 16  # each group draws all random numbers again


def empty_order(count: int, below: int) -> Order:
    """Return an uninitialized order of ``count`` numbers less than ``below``."""
    return np.empty(count, dtype=np.uint32 if below <= 2**32 else np.uint64)


def ascending(numbers: slice, below: int) -> Order:
    """Return a range of numbers less than ``below``."""
    return np.arange(numbers.start, numbers.stop, dtype=empty_order(0, below).dtype)


def permutation(count: int, *key: int) -> Order:
    """Return a random order, seeded by ``key``: numbers are sorted by 64 random bits each.

    numpy keeps random bits the same in every version, unlike its shuffles.
    """
    order = empty_order(count, count)
    groups, filled = min(MOST_GROUPS, 1 + count // GROUP), 0
    for group in range(groups):
        lowest, highest = 2**64 * group // groups, 2**64 * (group + 1) // groups - 1
        numbers, drawn = _drawn_between(lowest, highest, count, key)
        order[filled : filled + len(numbers)] = numbers[_sorted(drawn)]
        filled += len(numbers)
    return order


def _drawn_between(lowest: int, highest: int, count: int, key: tuple[int, ...]) -> tuple[Order, Any]:
    """Return which of ``count`` numbers draw bits in a range, both ends included, and their bits."""
    generator = np.random.PCG64(np.random.SeedSequence(key))
    numbers, drawn = [empty_order(0, count)], [np.empty(0, dtype=np.uint64)]
    for block in blocks(count):
        bits = np.asarray(generator.random_raw(block.stop - block.start))
        inside = np.flatnonzero((bits >= np.uint64(lowest)) & (bits <= np.uint64(highest)))
        drawn.append(bits[inside])
        numbers.append((inside + block.start).astype(numbers[0].dtype))
    return np.concatenate(numbers), np.concatenate(drawn)


def _sorted(drawn: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Sort stably. numpy's stable sort takes twice as long, and its result differs only for equal draws."""
    order = np.argsort(drawn)
    in_order = drawn[order]
    return np.argsort(drawn, kind="stable") if bool((in_order[1:] == in_order[:-1]).any()) else order


def sort_by_length(order: Order, *columns: Lengths, complete: bool = False) -> None:
    """Sort in place and stably by the first column, then by the next ones.

    ``complete``: ``order`` holds all sentences, each once, which is counted faster.
    """
    room = np.empty_like(order)
    for column in reversed(columns):  # stable sorts, the least significant first
        _distribute(order, column, length_counts(column, None if complete else order), room)
        order[:] = room


def _distribute(order: Order, lengths: Lengths, counts: Ints, room: Order) -> None:
    """Counting sort of ``order`` into ``room``, block by block."""
    free = np.cumsum(counts) - counts  # by length: the next place in `room`
    small = np.uint16 if len(counts) <= 2**16 else np.int64  # of 16 bits numpy sorts in linear time
    for block in blocks(len(order)):
        block_lengths = lengths[order[block]]
        by_length = np.argsort(block_lengths.astype(small), kind="stable")
        of_block = np.bincount(block_lengths, minlength=len(counts))
        places = np.arange(len(block_lengths)) + np.repeat(free - (np.cumsum(of_block) - of_block), of_block)
        room[places] = order[block][by_length]
        free += of_block
