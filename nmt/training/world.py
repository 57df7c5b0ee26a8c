"""The processes that train one model together. ``torchrun`` starts them, torch.distributed connects them.

All of them run the same program on the same configuration and decide everything alike; the first one (rank 0, "main")
also writes. The list of batches is the global one: of the batches of an update, process r of n takes r, r + n, r + 2n ...
"""

from __future__ import annotations

import contextlib
import datetime
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nmt.config.sections import DistributedConfig
from nmt.errors import DeviceError, NMTError, UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Share(Generic[T]):
    """A part of an update's work for one process."""

    key: tuple[int, ...]  # the number in the whole update; then, if it was split, which part
    item: T
    counts: bool = True  # False: done only because the others have one more, without effect
    last: bool = False  # of this process in this update


class World(ABC):
    """How many processes there are, and what they have to tell each other."""

    rank: int
    size: int

    @property
    def main(self) -> bool:
        return self.rank == 0

    def shares(self, items: Sequence[T]) -> list[Share[T]]:
        """What of an update this process does: as many items in each, so that all of them meet at the end."""
        rounds = -(-len(items) // self.size)
        found = []
        for turn in range(rounds):
            index = turn * self.size + self.rank
            counts = index < len(items)
            chosen = index if counts else 0
            found.append(Share((chosen,), items[chosen], counts, last=turn == rounds - 1))
        return found

    def part(self, items: Sequence[T]) -> Sequence[T]:
        """What of a list this process does, where nobody has to meet."""
        return items[self.rank :: self.size]

    @abstractmethod
    def wrap(self, step: nn.Module) -> nn.Module:
        """The module to call in training: its backward pass brings the gradients of all processes together."""

    @abstractmethod
    def backward_of(self, module: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Around forward and backward pass of a batch; gradients are exchanged at the last one of an update only."""

    @abstractmethod
    def total(self, sums: Tensor) -> Tensor:
        """Sums over all processes, on the device."""

    @abstractmethod
    def sums(self, values: Sequence[float]) -> list[float]:
        """The same of numbers; waits for all processes."""

    @abstractmethod
    def gather(self, value: T) -> list[T]:
        """What each process has, by rank, in all of them."""

    @abstractmethod
    def on_main(self, work: Callable[[], T]) -> T:
        """Done by the first process only; its result, or its error, in all of them."""


class Alone(World):
    """One process."""

    rank, size = 0, 1

    def wrap(self, step: nn.Module) -> nn.Module:
        return step

    def backward_of(self, module: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def total(self, sums: Tensor) -> Tensor:
        return sums

    def sums(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def gather(self, value: T) -> list[T]:
        return [value]

    def on_main(self, work: Callable[[], T]) -> T:
        return work()


class Together(World):
    """The processes of a process group; gradients are those of torch's DistributedDataParallel."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def wrap(self, step: nn.Module) -> nn.Module:
        return DistributedDataParallel(step, broadcast_buffers=False, gradient_as_bucket_view=True)

    def backward_of(self, module: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        assert isinstance(module, DistributedDataParallel)
        return contextlib.nullcontext() if last else module.no_sync()

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


@contextlib.contextmanager
def join(
    options: DistributedConfig, device: torch.device, environment: Mapping[str, str] = os.environ
) -> Iterator[World]:
    """The world that torchrun's variables describe; alone without them."""
    size = int(environment.get("WORLD_SIZE", "1"))
    if size == 1 or "RANK" not in environment:
        yield Alone()
        return
    if not dist.is_available():
        raise DeviceError("this torch was built without torch.distributed; start one process, without torchrun")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    timeout = datetime.timedelta(minutes=options.timeout_minutes)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=timeout)
    try:
        yield Together()
    except (dist.DistError, RuntimeError) as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise NMTError(
            f"process {environment['RANK']} lost the others: one of them has ended, and said why, or did not answer for "
            f"{options.timeout_minutes:g} minutes; start all of them again with the same command"
        ) from error
    finally:
        dist.destroy_process_group()


def own_device(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The device of this process: each process of a machine has a GPU of its own."""
    if "LOCAL_RANK" not in environment or int(environment.get("WORLD_SIZE", "1")) == 1:
        return name
    if name.startswith("cuda:"):
        raise UsageError(f"device.name={name} would give all processes the same GPU; use --device cuda with torchrun")
    if name == "cuda" or (name == "auto" and torch.cuda.is_available()):
        return f"cuda:{environment['LOCAL_RANK']}"
    return name
