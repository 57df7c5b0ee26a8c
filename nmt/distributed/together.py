"""Several processes that ``torchrun`` started and torch.distributed connects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nmt.distributed.world import Called, World
from nmt.errors import NMTError

T = TypeVar("T")


def digest(tensors: Iterable[Tensor]) -> float:
    """A number that hardly agrees where tensors differ."""
    return sum(float(tensor.detach().double().sum()) for tensor in tensors)


class Together(World):
    """The processes of a process group; gradients are those of torch's DistributedDataParallel."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def wrap(self, step: nn.Module) -> Called:
        wrapped = DistributedDataParallel(step, gradient_as_bucket_view=True)
        wrapped.broadcast_buffers = False  # they are constants; as an argument this has two names, by version
        return wrapped

    def backward_of(self, called: Called, *, last: bool) -> AbstractContextManager[object]:
        assert isinstance(called, DistributedDataParallel)
        return contextlib.nullcontext() if last else called.no_sync()

    def meets(self, *, last: bool) -> Sequence[str]:
        return ("backward",) if last else ()  # where gradients are exchanged

    def total(self, sums: Tensor) -> Tensor:
        dist.all_reduce(sums)
        return sums

    def sums(self, values: Sequence[float]) -> list[float]:
        return [float(value) for value in self.total(torch.tensor(values, dtype=torch.float64)).tolist()]

    def gather(self, value: T) -> list[T]:
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered

    def on_main(self, work: Callable[[], T]) -> T:
        told: list[Any] = [None, None]
        if self.main:
            try:
                told[0] = work()
            except NMTError as error:
                told[1] = error
        dist.broadcast_object_list(told, src=0)
        if told[1] is not None:
            raise told[1]
        result: T = told[0]
        return result
