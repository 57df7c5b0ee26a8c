"""Ranks that ``torchrun`` started and torch.distributed connects, each with all parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nmt.devices.kinds import device_of
from nmt.distributed.peers import Peers
from nmt.distributed.world import World, WrappedStep
from nmt.errors import NMTError
from nmt.reporting.stopwatch import WAITING

T = TypeVar("T")


def digest(tensors: Iterable[Tensor]) -> float:
    """Return a number that almost always differs if tensors differ."""
    sums = [tensor.detach().to(device_of(tensor).exact).sum() for tensor in tensors]
    return float(torch.stack(sums).sum()) if sums else 0.0


class Replicated(World):
    """The ranks of a process group; torch's DistributedDataParallel averages their gradients."""

    def __init__(self, peers: Peers | None = None) -> None:
        """``peers`` counts the meetings of this rank; None: late ranks are not watched."""
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._peers = peers
        if peers is not None:
            stopwatch = self.stopwatch  # made here, since another thread calls ``activity``
            peers.activity = lambda: stopwatch.activity

    def arrive(self) -> None:
        if self._peers is not None:
            self._peers.arrive()

    @contextlib.contextmanager
    def _meeting(self) -> Iterator[None]:
        """Count an exchange of all ranks, and charge its time to waiting."""
        self.arrive()
        with self.stopwatch.during(WAITING):
            yield

    def wrap(self, step: nn.Module) -> WrappedStep:
        wrapped = DistributedDataParallel(step, gradient_as_bucket_view=True)
        wrapped.broadcast_buffers = (
            False  # buffers are constants; as an argument this has another name in some versions
        )
        return wrapped

    def backward_of(self, wrapped: WrappedStep, *, last: bool) -> AbstractContextManager[object]:
        assert isinstance(wrapped, DistributedDataParallel)
        return contextlib.nullcontext() if last else wrapped.no_sync()

    def meets(self, *, last: bool) -> Sequence[str]:
        return ("backward",) if last else ()  # where gradients are exchanged

    def total(self, sums: Tensor) -> Tensor:
        with self._meeting():
            dist.all_reduce(sums)
        return sums

    def sums(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in self.total(torch.tensor(values, dtype=torch.float64)).tolist()]

    def gather(self, value: T) -> list[T]:
        gathered: list[Any] = [None] * self.size
        with self._meeting():
            dist.all_gather_object(gathered, value)
        return gathered

    def on_main(self, work: Callable[[], T]) -> T:
        outcome: list[Any] = [None, None]
        if self.main:
            try:
                outcome[0] = work()
            except NMTError as error:
                outcome[1] = error
        with self._meeting():
            dist.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result
