"""The device that tests without a GPU use in its place: ``second``, or a fake CUDA GPU if its runtime was preloaded."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import torch

from nmt.devices.kinds import device_of
from tests.devices import second_device

_process = ctypes.CDLL(None)
IS_CUDA = hasattr(_process, "fake_cuda_limit")
NAME = "cuda" if IS_CUDA else second_device.NAME
DEVICE = torch.device("cuda", 0) if IS_CUDA else second_device.install()


@contextlib.contextmanager
def budget(size: float) -> Iterator[None]:
    """Let the device have only ``size`` bytes more than it has given now."""
    if not IS_CUDA:
        with second_device.budget(size):
            yield
        return
    torch.cuda.empty_cache()
    _process.fake_cuda_limit(ctypes.c_size_t(torch.cuda.memory_reserved() + int(size)))
    try:
        yield
    finally:
        _process.fake_cuda_limit(ctypes.c_size_t(0))


def memory_of(work: object) -> int:
    """Return the bytes that a function needs at its peak, besides those that are in use."""
    kind = device_of(DEVICE)
    kind.release_memory()
    kind.reset_peak()
    before = kind.peak_memory() or 0
    work()  # type: ignore[operator]
    return (kind.peak_memory() or 0) - before
