"""The processes that train or translate with one model together. ``torchrun`` starts them, torch.distributed connects them.

All of them run the same program on the same configuration and decide everything alike; the first one (rank 0, "main")
also writes. The list of batches is the global one: of the batches of an update, process r of n takes r, r + n, r + 2n ...
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:  # a single process that translates does without torch
    from torch import Tensor, nn

    from nmt.interface import Batch, LossReport

T = TypeVar("T")
Called = Callable[["Batch"], "LossReport"]  # a step, as training calls it


@dataclass(frozen=True)
class Share(Generic[T]):
    """A part of an update's work for one process."""

    key: tuple[int, ...]  # the number in the whole update; then, if it was split, which part
    item: T
    counts: bool = True  # False: done only because the others have one more, without effect
    last: bool = False  # of this process in this update


class World:
    """How many processes there are, and what they have to tell each other. This one is a single process."""

    rank, size = 0, 1
    divides = False  # whether each process holds a part of every parameter only

    @property
    def main(self) -> bool:
        return self.rank == 0

    def shares(self, items: Sequence[T]) -> list[Share[T]]:
        """What of an update this process does: as many items in each, so that all of them meet at the end."""
        found = []
        for begin in range(0, len(items), self.size):
            counts = begin + self.rank < len(items)
            chosen = begin + self.rank if counts else 0
            found.append(Share((chosen,), items[chosen], counts, last=begin + self.size >= len(items)))
        return found

    def part(self, items: Sequence[T]) -> Sequence[T]:
        """What of a list this process does, where nobody has to meet."""
        return items[self.rank :: self.size]

    def divide(self, step: nn.Module) -> None:
        """Before its optimizer is made: leave of the parameters of ``step``, which all have alike, what this one holds."""
        return

    def wrap(self, step: nn.Module) -> Called:
        """What to call in training: its backward pass brings the gradients of all processes together."""
        return step

    def backward_of(self, called: Called, *, last: bool) -> AbstractContextManager[object]:
        """Around forward and backward pass of a batch; gradients are exchanged at the last one of an update only."""
        return contextlib.nullcontext()

    def meets(self, *, last: bool) -> Sequence[str]:
        """Which passes of a batch, "forward" and "backward", the processes make together: none can repeat one alone."""
        return ()

    def whole(self) -> AbstractContextManager[object]:
        """Inside it modules have all their parameters, which do not change, and nobody waits: each process may do as
        much as it likes. All of them enter and leave it together."""
        return contextlib.nullcontext()

    def held(self, tensor: Tensor) -> Tensor:
        """What this process holds of a parameter or of its gradient; shares its memory."""
        return tensor

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        """What this process holds of a tensor that all have, if it belongs to the parameter ``like``."""
        return tensor

    def gathered(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Whole tensors for the first process to store; nobody else needs what this returns."""
        return tensors

    def replicas(self, parameters: Iterable[Tensor]) -> Iterable[Tensor]:
        """Those that every process holds, and that must be the same in all."""
        return parameters

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The norm of all gradients as one vector."""
        from torch.nn.utils import get_total_norm

        return get_total_norm(gradients)

    def total(self, sums: Tensor) -> Tensor:
        """Sums over all processes, on the device."""
        return sums

    def sums(self, values: Sequence[float]) -> list[float]:
        """The same of numbers; waits for all processes."""
        return list(values)

    def gather(self, value: T) -> list[T]:
        """What each process has, by rank, in all of them."""
        return [value]

    def on_main(self, work: Callable[[], T]) -> T:
        """Done by the first process only; its result, or its error, in all of them."""
        return work()


@dataclass(frozen=True)
class Chunks:
    """The processes meet after every chunk, so none of them keeps more than one. What they read in a turn is divided into
    parts of equal size. A single process does everything at once."""

    world: World
    size: int  # the most items of a chunk

    def own(self, items: Iterable[T], first: int) -> tuple[Iterator[T], Iterator[int]]:
        """Of all items, those that this process does, and their numbers; the first item has the number ``first``."""
        if self.world.size == 1:
            return iter(items), itertools.count(first)
        here, there = itertools.tee(self._shares(enumerate(items, first)))  # one is hardly ahead of the other
        return (item for _, item in here), (number for number, _ in there)

    def merged(self, done: Iterator[T], progress: Callable[[int], None]) -> Iterator[T]:
        """What became of all items, in their order; other processes than the first get nothing. ``progress`` is told of
        what the others have done."""
        if self.world.size == 1:
            yield from done
            return
        while any(chunks := self.world.gather(list(itertools.islice(done, self.size)))):
            if self.world.main:
                progress(sum(map(len, chunks[1:])))
                yield from itertools.chain.from_iterable(chunks)

    def _shares(self, items: Iterator[T]) -> Iterator[T]:
        size, rank = self.world.size, self.world.rank
        while turn := list(itertools.islice(items, self.size * size)):
            share = -(-len(turn) // size)
            yield from turn[rank * share : (rank + 1) * share]
