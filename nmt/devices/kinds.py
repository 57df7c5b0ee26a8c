"""What differs between kinds of device: number formats, memory, streams, copies, names.

``device_of`` returns an object for one device. Models and training ask it, and compare no names of devices. torch has one
interface to all accelerators, ``torch.accelerator``; for what it lacks, kinds have a module each, such as ``torch.cuda``.
None of the classes for accelerators has run on its hardware yet.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from nmt.devices import is_shortage
from nmt.devices.copies import Arriving, groups, in_one_copy

Array = npt.NDArray[Any]


class Device:
    """A device. The answers of this class are those of a CPU, which computes while it is called."""

    queues = False  # a call returns before its work is done, so that Python can launch more
    copies_aside = False  # a separate stream can copy from pinned memory during computation
    skips_updates = False  # torch's fused optimizers make no step where a flag in its memory says so
    exact = torch.float64  # data type of sums that must not lose digits
    ranks_int64 = True  # finds the largest of 64-bit integers
    halves = False  # float16 is as fast as bfloat16, or faster
    records = False  # what a function launches can be recorded and replayed (CUDA graphs)

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __str__(self) -> str:
        return str(self.device)

    @property
    def hardware(self) -> str:
        """What the device calls itself."""
        return "CPU"

    @property
    def driver(self) -> str:
        """The version of the driver, as far as it can be read."""
        return ""

    def facts(self) -> dict[str, Any]:
        """Return what the log of a run tells of the device."""
        return {}

    # Number formats

    def computes_bf16(self) -> bool:
        """Whether there are instructions for bfloat16; without them it is emulated, which is slower than float32."""
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())

    def multiplies_tiles(self) -> bool:
        """Whether whole tiles are multiplied in bfloat16 (AMX), many times as fast as in float32."""
        return bool(torch.cpu._is_amx_tile_supported())

    def computes_tf32(self) -> bool:
        """Whether matrix products in float32 can be computed with 10 bits of mantissa."""
        return False

    def allow_tf32(self, allowed: bool) -> None:
        """Set whether they are, in this process."""

    def attends_flat(self) -> bool:
        """Whether torch has a kernel of attention for batches without padding, in half precision."""
        return False

    # Memory

    def release_memory(self) -> None:
        """Give unused memory back to the device, after memory ran short."""

    def grow_segments(self) -> bool:
        """Let torch's allocator grow the segments that it has, before the first allocation. False: it cannot."""
        return False

    def reset_peak(self) -> None:
        """Measure the peak of memory from now on."""

    def peak_memory(self) -> int | None:
        """Return the most bytes that tensors had; None: the system counts them, with everything else of the process."""
        return None

    def most_memory(self) -> int | None:
        """Return the bytes that this process can have; None: as many as the system has."""
        return None

    def reserved_share(self) -> float | None:
        """Return the share of ``most_memory`` that torch took at its peak; None: unknown."""
        return None

    # Work and copies

    def synchronize(self) -> None:
        """Wait for all work."""

    def moved(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the CPU here. An accelerator that copies aside is not waited for."""
        return tensor

    def sent(self, numbers: Array) -> Tensor:
        """Return an array as a tensor here."""
        return self.moved(torch.from_numpy(numbers))

    def fetched(self, *tensors: Tensor) -> list[Array]:
        """Return tensors of the device as arrays. An accelerator is waited for once."""
        return [tensor.numpy() for tensor in tensors]

    def copied(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return copies of tensors in contiguous memory of the CPU."""
        return [tensor.to("cpu", copy=True, memory_format=torch.contiguous_format) for tensor in tensors]

    def fetch_later(self, numbers: Tensor) -> Arriving:
        """Begin to copy a few numbers to the CPU."""
        return Arriving(numbers.to("cpu", copy=True), None)

    @contextlib.contextmanager
    def refusing_waits(self) -> Iterator[bool]:
        """Let an operation that waits for the device raise an error within the block. False: torch cannot."""
        yield False

    # What other parts of torch call it

    @property
    def activities(self) -> list[ProfilerActivity]:
        """What a profile of a run traces."""
        return [ProfilerActivity.CPU]

    @property
    def backend(self) -> str:
        """The backends by which processes on such devices exchange tensors."""
        return "gloo"


class Accelerator(Device):
    """A device other than the CPU, of any kind that torch knows, including kinds from plug-ins."""

    queues = True

    @functools.cached_property
    def module(self) -> Any:
        """torch's module of this kind."""
        return torch.get_device_module(self.device)

    @property
    def hardware(self) -> str:
        name = getattr(self.module, "get_device_name", None)
        return self.device.type if name is None else str(name(self.device))

    def facts(self) -> dict[str, Any]:
        return {"gpu": self.hardware}

    def computes_bf16(self) -> bool:
        supported = getattr(self.module, "is_bf16_supported", None)
        return supported is not None and bool(supported())

    def multiplies_tiles(self) -> bool:
        return False

    def release_memory(self) -> None:
        if hasattr(self.module, "empty_cache"):
            self.module.empty_cache()

    def reset_peak(self) -> None:
        is_used = getattr(self.module, "is_initialized", lambda: True)()  # torch refuses a device that is not
        if is_used and hasattr(self.module, "reset_peak_memory_stats"):
            self.module.reset_peak_memory_stats(self.device)

    def peak_memory(self) -> int | None:
        return self._figure("max_memory_allocated")

    def most_memory(self) -> int | None:
        """Return the free memory, and what torch has reserved of the rest: others use the device too."""
        if not hasattr(self.module, "mem_get_info"):
            return None
        free, _ = self.module.mem_get_info(self.device)
        return int(free) + (self._figure("memory_reserved") or 0)

    def reserved_share(self) -> float | None:
        reserved, most = self._figure("max_memory_reserved"), self.most_memory()
        return None if reserved is None or not most else reserved / most

    def _figure(self, name: str) -> int | None:
        figure = getattr(self.module, name, None)
        return None if figure is None else int(figure(self.device))

    def synchronize(self) -> None:
        torch.accelerator.synchronize(self.device)

    def moved(self, tensor: Tensor) -> Tensor:
        if not self.copies_aside:  # the memory must stay until the copy is done
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def fetched(self, *tensors: Tensor) -> list[Array]:
        return [tensor.numpy() for tensor in in_one_copy(tensors)]

    def copied(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        copies = list[Tensor]()
        for group in groups(tensors):  # each is waited for once
            try:
                copies += in_one_copy(group)
            except Exception as error:
                if not is_shortage(error):
                    raise
                copies += super().copied(group)  # each is waited for, and needs no memory of the device
        return copies

    def fetch_later(self, numbers: Tensor) -> Arriving:
        if not self.copies_aside:
            return super().fetch_later(numbers)
        there = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        there.copy_(numbers, non_blocking=True)
        return Arriving(there, self.computing.record_event())

    @property
    def computing(self) -> torch.Stream:
        """The stream on which this thread launches work."""
        return torch.accelerator.current_stream(self.device)

    @functools.cached_property
    def copying(self) -> torch.Stream:
        """A stream that copies while another one computes."""
        return torch.Stream(self.device)

    @contextlib.contextmanager
    def on_copying(self) -> Iterator[None]:
        """Launch work on the stream ``copying``. A new thread uses the first device by default, and would open it in every
        process."""
        index = self.device.index if self.device.index is not None else torch.accelerator.current_device_index()
        with torch.accelerator.device_index(index):
            before = self.computing
            # As a context, a stream could not be shared by threads in older releases of torch.
            torch.accelerator.set_stream(self.copying)
            try:
                yield
            finally:
                torch.accelerator.set_stream(before)

    def await_copy(self, copied: torch.Event, tensors: Iterable[Tensor]) -> None:
        """Let work that this thread launches from now on wait for a copy of ``copying``, and keep the memory of the copied
        tensors until that work is done."""
        computing = self.computing
        computing.wait_event(copied)
        for tensor in tensors:
            tensor.record_stream(computing)

    @property
    def backend(self) -> str:
        return f"cpu:gloo,{self.device.type}:{torch.distributed.get_default_backend_for_device(self.device)}"


class Cuda(Accelerator):
    """An NVIDIA GPU."""

    copies_aside = skips_updates = halves = records = True
    _kernel_module = "nvidia"

    @property
    def driver(self) -> str:
        with contextlib.suppress(OSError):
            return Path(f"/sys/module/{self._kernel_module}/version").read_text(encoding="utf-8").strip()
        return "unknown"

    def attends_flat(self) -> bool:
        return self._is_ampere()

    def computes_tf32(self) -> bool:
        return self._is_ampere()

    def allow_tf32(self, allowed: bool) -> None:
        precision = "tf32" if allowed and self.computes_tf32() else "ieee"
        torch.backends.cuda.matmul.fp32_precision = precision
        torch.backends.cudnn.conv.fp32_precision = precision  # type: ignore[attr-defined]
        torch.backends.cudnn.rnn.fp32_precision = precision  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def refusing_waits(self) -> Iterator[bool]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield True
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def grow_segments(self) -> bool:
        names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # settings replace those of the user's variable
        users = next((os.environ[name] for name in names if os.environ.get(name)), "")
        settings = ",".join(filter(None, [users, "expandable_segments:True"]))
        if hasattr(torch._C, "_accelerator_setAllocatorSettings"):
            torch._C._accelerator_setAllocatorSettings(settings)
        else:
            torch.cuda.memory._set_allocator_settings(settings)
        return True

    def _is_ampere(self) -> bool:
        return torch.cuda.get_device_capability(self.device) >= (8, 0)

    def facts(self) -> dict[str, Any]:
        return {"gpu": self.hardware, "cuda": torch.version.cuda}

    def computes_bf16(self) -> bool:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))

    @property
    def activities(self) -> list[ProfilerActivity]:
        return [ProfilerActivity.CPU, ProfilerActivity.CUDA]


class Rocm(Cuda):
    """An AMD GPU, which torch calls by the names of CUDA."""

    _kernel_module = "amdgpu"

    def attends_flat(self) -> bool:
        return False  # torch's issue 173469 reports NaN

    def computes_tf32(self) -> bool:
        return False

    def facts(self) -> dict[str, Any]:
        return {"gpu": self.hardware, "rocm": torch.version.hip}


class Xpu(Accelerator):
    """An Intel GPU."""

    copies_aside = skips_updates = True

    @property
    def driver(self) -> str:
        return str(torch.xpu.get_device_properties(self.device).driver_version)

    @property
    def activities(self) -> list[ProfilerActivity]:
        return [ProfilerActivity.CPU, ProfilerActivity.XPU]


class Mps(Accelerator):
    """The GPU of a Mac, which shares the memory of its CPU and has no float64."""

    exact = torch.float32
    ranks_int64 = False  # not in every version of macOS
    halves = True

    @property
    def hardware(self) -> str:
        return "Apple GPU"

    @property
    def driver(self) -> str:
        return f"macOS {platform.mac_ver()[0]}"

    def computes_bf16(self) -> bool:
        return True

    def peak_memory(self) -> int | None:
        return int(torch.mps.driver_allocated_memory())

    def most_memory(self) -> int | None:
        return int(torch.mps.recommended_max_memory())

    def reserved_share(self) -> float | None:
        return torch.mps.driver_allocated_memory() / torch.mps.recommended_max_memory()


KINDS: dict[str, type[Device]] = {
    "cpu": Device,
    "cuda": Cuda if torch.version.hip is None else Rocm,
    "mps": Mps,
    "xpu": Xpu,
}  # others: Accelerator


_objects: dict[str, Device] = {}  # by name; torch.compile traces no functools.cache


def device_of(device: torch.device | str | Tensor) -> Device:
    """Return the object for a device, or for that of a tensor."""
    name = str(device.device if isinstance(device, Tensor) else device)
    if name not in _objects:
        made = torch.device(name)
        _objects[name] = KINDS.get(made.type, Accelerator)(made)
    return _objects[name]
