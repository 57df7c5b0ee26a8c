"""Dividing what several processes read alike among them, and putting the results together again in its order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from nmt.distributed.world import World

T = TypeVar("T")


class Chunks:
    """The processes meet after every chunk, so none of them keeps more than one. What they read in a turn is divided into
    parts of equal size. A single process does everything at once."""

    def __init__(self, world: World, size: int) -> None:
        """``size``: the most items of a chunk."""
        self._world = world
        self._size = size

    def own(self, items: Iterable[T], first: int) -> tuple[Iterator[T], Iterator[int]]:
        """Of all items, those that this process does, and their numbers; the first item has the number ``first``."""
        if self._world.size == 1:
            return iter(items), itertools.count(first)
        here, there = itertools.tee(self._shares(enumerate(items, first)))  # one is hardly ahead of the other
        return (item for _, item in here), (number for number, _ in there)

    def merged(self, done: Iterator[T], progress: Callable[[int], None]) -> Iterator[T]:
        """What became of all items, in their order; other processes than the first get nothing. ``progress`` is told of
        what the others have done."""
        if self._world.size == 1:
            yield from done
            return
        while any(chunks := self._world.gather(list(itertools.islice(done, self._size)))):
            if self._world.main:
                progress(sum(map(len, chunks[1:])))
                yield from itertools.chain.from_iterable(chunks)

    def _shares(self, items: Iterator[T]) -> Iterator[T]:
        size, rank = self._world.size, self._world.rank
        while turn := list(itertools.islice(items, self._size * size)):
            share = -(-len(turn) // size)
            yield from turn[rank * share : (rank + 1) * share]
