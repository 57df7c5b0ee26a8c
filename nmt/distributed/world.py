"""The ranks that train or translate with one model. ``torchrun`` starts them, torch.distributed connects them.

All ranks run the same program on the same configuration and make the same decisions; rank 0 ("main") also writes.
Rank r of n computes the batches r, r + n, r + 2n ... of an update's global list of batches.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from nmt.reporting.stopwatch import Stopwatch

if TYPE_CHECKING:  # a single process that translates does without torch
    from torch import Tensor, nn

    from nmt.interface import Batch, LossReport

T = TypeVar("T")
WrappedStep = Callable[["Batch"], "LossReport"]  # a step, as training calls it


@dataclass(frozen=True)
class Share(Generic[T]):
    """One item of an update's work for one rank."""

    key: tuple[int, ...]  # the number within the update; then, if it was split, the part
    item: T
    counts: bool = True  # False: computed without effect, because other ranks have one more
    last: bool = False  # of this rank in this update


_BLOCK = 2**14  # elements


def squares(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of all squares, in float64 if the device has it: in float32 the norm of a large matrix loses up to 1e-4
    of its value.

    Norms of blocks are computed in float32, which is exact enough for a block and needs no copy in float64.
    """
    import torch

    from nmt.devices.kinds import device_of

    blocks = [block for tensor in tensors for block in torch.split(tensor.reshape(-1), _BLOCK)]
    if not blocks:
        return torch.zeros((), dtype=torch.float64)
    norms = torch.stack(torch._foreach_norm(blocks, 2, dtype=torch.float32))
    return norms.to(device_of(norms).exact).square().sum()


class World:
    """The number of ranks, and their communication. This class is a single process."""

    rank, size = 0, 1
    divides = False  # whether each rank holds only a part of every parameter

    @cached_property
    def stopwatch(self) -> Stopwatch:
        """The stopwatch of this process. Collectives charge their time to waiting."""
        return Stopwatch()

    @property
    def main(self) -> bool:
        return self.rank == 0

    def shares(self, items: Sequence[T]) -> list[Share[T]]:
        """Return this rank's items of an update. All ranks get the same number, so that they meet at the end."""
        shares = []
        for begin in range(0, len(items), self.size):
            counts = begin + self.rank < len(items)
            chosen = begin + self.rank if counts else 0
            shares.append(Share((chosen,), items[chosen], counts, last=begin + self.size >= len(items)))
        return shares

    def part(self, items: Sequence[T]) -> Sequence[T]:
        """Return this rank's items of a list; ranks may get different numbers."""
        return items[self.rank :: self.size]

    def divide(self, step: nn.Module) -> None:
        """Keep only this rank's part of the parameters of ``step``. Call this before its optimizer is built."""
        return

    def wrap(self, step: nn.Module) -> WrappedStep:
        """Return the module to call in training; its backward pass exchanges gradients among ranks."""
        return step

    def backward_of(self, wrapped: WrappedStep, *, last: bool) -> AbstractContextManager[object]:
        """Surround the passes of a batch; gradients are exchanged with the last batch of an update only."""
        return contextlib.nullcontext()

    def meets(self, *, last: bool) -> Sequence[str]:
        """Return the passes of a batch ("forward", "backward") that ranks make together and none can repeat alone."""
        return ()

    def arrive(self) -> None:
        """Note that this rank has reached a point where all ranks meet. Ranks that have not are late."""
        return

    def whole(self) -> AbstractContextManager[object]:
        """Give modules all their parameters, unchanged, inside the block, where no rank waits for others. All ranks enter
        and leave it together."""
        return contextlib.nullcontext()

    def local_part(self, tensor: Tensor) -> Tensor:
        """Return this rank's part of a parameter or gradient, with shared memory."""
        return tensor

    def scattered(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return this rank's part of a whole tensor that belongs to the parameter ``like``."""
        return tensor

    def gathered(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return whole tensors, for rank 0 to store."""
        return tensors

    def replicas(self, parameters: Iterable[Tensor]) -> Iterable[Tensor]:
        """Return the parameters that every rank holds whole, and that must be equal on all."""
        return parameters

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the norm of all gradients as one vector."""
        return squares(gradients).sqrt().float()

    def total(self, sums: Tensor) -> Tensor:
        """Return sums over all ranks, on the device."""
        return sums

    def sums(self, values: Sequence[float]) -> list[float]:
        """Return sums of numbers over all ranks, after waiting for them."""
        return list(values)

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in order, on all ranks."""
        return [value]

    def on_main(self, work: Callable[[], T]) -> T:
        """Let rank 0 work. Return its result, or raise its error, on all ranks."""
        return work()


@dataclass(frozen=True)
class Chunks:
    """Divide a stream of items among ranks, which meet after every chunk, so that none holds more than one. A single process
    does everything at once."""

    world: World
    size: int  # the most items of a chunk

    def own(self, items: Iterable[T], first: int) -> tuple[Iterator[T], Iterator[int]]:
        """Return this rank's items and their numbers; the first item of all has the number ``first``."""
        if self.world.size == 1:
            return iter(items), itertools.count(first)
        here, there = itertools.tee(self._shares(enumerate(items, first)))  # both advance together
        return (item for _, item in here), (number for number, _ in there)

    def merged(self, done: Iterator[T], progress: Callable[[int], None]) -> Iterator[T]:
        """Yield the results of all items in order, on rank 0 only. ``progress`` receives the number of results of the other
        ranks."""
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
