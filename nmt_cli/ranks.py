"""Dividing the lines to translate among the processes that torchrun started, and putting them together again."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:  # brings torch.distributed with it, which a single process does not wait for
    from nmt.training.world import World

T = TypeVar("T")

_PATIENCE = 24 * 60.0  # minutes that a process waits for another one's chunk


class Ranks(Protocol):
    """Processes that each know which they are. Each takes its share of what they read."""

    main: bool
    alone: bool

    def own(self, items: Iterable[T], first: int) -> tuple[Iterator[T], Iterator[int]]:
        """Of all items, those that this process does, and their numbers; the first item has the number ``first``."""
        ...

    def merged(self, done: Iterator[T], progress: Callable[[int], None]) -> Iterator[T]:
        """What became of all items, in their order; other processes than the first get nothing. ``progress`` is told of
        what the others have done."""
        ...

    def on_first(self, work: Callable[[], T]) -> T:
        """Done by the first process only; its result, or its error, in all."""
        ...


class Alone:
    """One process does everything."""

    main = alone = True

    def own(self, items: Iterable[T], first: int) -> tuple[Iterator[T], Iterator[int]]:
        return iter(items), itertools.count(first)

    def merged(self, done: Iterator[T], progress: Callable[[int], None]) -> Iterator[T]:
        return done

    def on_first(self, work: Callable[[], T]) -> T:
        return work()


class Together:
    """Several; they meet after every chunk, so none of them keeps more than one. What they read in a turn is divided into
    parts of equal size."""

    alone = False

    def __init__(self, world: World, chunk: int) -> None:
        self._world = world
        self._chunk = chunk
        self.main = world.main

    def own(self, items: Iterable[T], first: int) -> tuple[Iterator[T], Iterator[int]]:
        here, there = itertools.tee(self._shares(enumerate(items, first)))  # one is hardly ahead of the other
        return (item for _, item in here), (number for number, _ in there)

    def _shares(self, items: Iterator[T]) -> Iterator[T]:
        size, rank = self._world.size, self._world.rank
        while turn := list(itertools.islice(items, self._chunk * size)):
            share = -(-len(turn) // size)
            yield from turn[rank * share : (rank + 1) * share]

    def merged(self, done: Iterator[T], progress: Callable[[int], None]) -> Iterator[T]:
        while True:
            chunks = self._world.gather(list(itertools.islice(done, self._chunk)))
            if not any(chunks):
                return
            if self.main:
                progress(sum(map(len, chunks[1:])))
                yield from itertools.chain.from_iterable(chunks)

    def on_first(self, work: Callable[[], T]) -> T:
        return self._world.on_main(work)


@contextlib.contextmanager
def joined(device: str, chunk: int) -> Iterator[Ranks]:
    """Those that torchrun's variables describe."""
    if os.environ.get("WORLD_SIZE", "1") == "1" or "RANK" not in os.environ:
        yield Alone()
        return
    import torch

    from nmt.config.sections import DistributedConfig
    from nmt.training.joining import join

    with join(DistributedConfig(timeout_minutes=_PATIENCE), torch.device(device)) as world:
        yield Together(world, chunk)
