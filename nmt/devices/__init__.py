"""Choose the device and the precision of a process. torch is imported only by functions that need it.

A device is a name ("cpu", "cuda", "cuda:1") or torch's own object, whose text is that name. ``kinds.py`` knows what differs
between kinds of device.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config.checks import require_device
from nmt.config.choices import Precision
from nmt.errors import DeviceError, UsageError

if TYPE_CHECKING:
    import torch

    DeviceLike = str | torch.device

# Libraries and files of drivers: of NVIDIA, AMD and Intel GPUs.
_LIBRARIES, _FILES = ("libcuda.so.1", "libze_loader.so.1"), (Path("/dev/kfd"),)
# Variables by which a scheduler of a cluster shows each process its own devices only.
_VISIBLE = {
    "cuda": ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK",),
}


def choose_device(name: str) -> torch.device:
    """Return the device of a name on this machine, and make it torch's current one."""
    import torch

    device = torch.device(device_named(name))
    make_current(device)
    return device


def device_named(name: str) -> str:
    """Return the name of a device that is there: for ``auto`` an accelerator, or else ``cpu``."""
    if name == "auto":
        return usable_accelerator() or "cpu"
    require_device(name)
    if (kind := kind_of(name)) != "cpu":
        count = _module(kind).device_count() if _module(kind).is_available() else 0
        if count == 0:
            raise DeviceError(f"device.name={name} does not exist: {_missing(kind)}; use --device cpu")
        if int(name.partition(":")[2] or 0) >= count:
            there = f"only {kind}:0; choose it"
            if count > 1:
                there = f"{kind}:0 {'and' if count == 2 else 'to'} {kind}:{count - 1}; choose one of them"
            raise DeviceError(f"device.name={name} does not exist: this machine has {there}")
    return name


def kind_of(device: DeviceLike) -> str:
    """Return ``cpu``, ``cuda`` and the like, without the number."""
    return str(device).partition(":")[0]


def usable_accelerator() -> str | None:
    """Return the kind of accelerator that torch can use on this machine. torch is imported only if there is a driver.

    The GPU of a Mac is used only by name: this program has not run there.
    """
    if "torch" not in sys.modules and sys.platform == "linux" and not _has_driver():
        return None
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    return None if device is None or device.type == "mps" else device.type


def _has_driver() -> bool:
    """Whether torch would find a driver, or a plug-in of torch for another kind of device."""
    for library in _LIBRARIES:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return any(path.exists() for path in _FILES) or bool(metadata.entry_points(group="torch.backends"))


def _module(kind: str) -> Any:
    """Return torch's module of a kind of device."""
    import torch

    return torch.get_device_module(kind)


def _missing(kind: str) -> str:
    """Say that no device of a kind can be used, and what this torch was built for."""
    import torch

    built = ""
    if kind == "cuda":
        built = f", built for CUDA {torch.version.cuda}" if torch.version.cuda else ", built without CUDA"
        built = f", built for ROCm {torch.version.hip}" if torch.version.hip else built
    return f"no GPU can be used (torch {torch.__version__}{built})"


def own_device(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the device of this rank: the ranks on one machine have different GPUs."""
    if "LOCAL_RANK" not in environment or int(environment.get("WORLD_SIZE", "1")) == 1:
        return name
    kind = usable_accelerator() or "cpu" if name == "auto" else kind_of(name)
    if ":" in name:
        raise UsageError(f"device.name={name} would give all processes the same GPU; use --device {kind} with torchrun")
    if kind == "cpu":
        return name
    variables = [environment.get(variable, ",") for variable in _VISIBLE.get(kind, ())]
    sees_one = any("," not in variable for variable in variables)  # it is the rank's own
    return f"{kind}:{0 if sees_one else environment['LOCAL_RANK']}"


def make_current(device: DeviceLike) -> None:
    """Make a GPU torch's current one, which its queries of memory and capabilities refer to."""
    number = str(device).partition(":")[2]
    if number:
        import torch

        torch.accelerator.set_device_index(int(number))


def parameter_type(device: DeviceLike, precision: Precision) -> torch.dtype:
    """Return the dtype of a model's parameters for translation in ``precision``."""
    import torch

    require_translating(device, precision)
    return {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}.get(precision, torch.float32)


def meant(precision: Precision, device: DeviceLike) -> Precision:
    """Return ``auto`` or ``fp32`` for ``usual``, by device."""
    if precision is not Precision.usual:
        return precision
    return Precision.fp32 if kind_of(device) == "cpu" else Precision.auto


def half_precision(device: DeviceLike) -> Precision:
    """Return the fastest precision of an accelerator that works there."""
    from nmt.devices.faults import FastPath, avoids
    from nmt.devices.kinds import device_of

    kind = device_of(device)
    if kind.computes_bf16() and not avoids(kind.device, FastPath.bf16):
        return Precision.bf16
    return Precision.fp16 if kind.halves and not avoids(kind.device, FastPath.fp16) else Precision.fp32


def require_precision(device: DeviceLike, precision: Precision) -> None:
    """Refuse a precision that a device lacks, or that a GPU would emulate. Every CPU computes in bf16, some slowly."""
    on_cpu = kind_of(device) == "cpu"
    if precision is Precision.fp16 and on_cpu:
        raise UsageError("precision fp16 is for GPUs; on a CPU use --precision bf16 or fp32")
    if precision is Precision.tf32:
        from nmt.devices.kinds import device_of

        if on_cpu or not device_of(device).computes_tf32():
            raise UsageError("precision tf32 is for NVIDIA GPUs of capability 8.0 and higher; use --precision fp32")
    if precision in (Precision.bf16, Precision.bf16_output) and not on_cpu:
        from nmt.devices.kinds import device_of

        if not device_of(device).computes_bf16():
            raise DeviceError(f"{device_of(device).hardware} cannot compute in bf16; use --precision fp16 or fp32")


def require_translating(device: DeviceLike, precision: Precision) -> None:
    """Refuse also a precision that is only for training."""
    require_precision(device, precision)
    if precision is Precision.bf16_output:
        raise UsageError("precision bf16_output is for training; translate with --precision fp32 or bf16")


# Out-of-memory errors without an exception class: of the CPU ("can't allocate memory", "not enough memory"), cuBLAS,
# cuDNN, CUDA, HIP, NCCL and MPS. An entry matches if the message contains all its words.
_SHORTAGES = (
    ("DefaultCPUAllocator: ", "memory"),
    ("CUBLAS_STATUS_ALLOC_FAILED",),
    ("CUDNN_STATUS_ALLOC_FAILED",),
    ("CUDA error: out of memory",),
    ("HIP error: out of memory",),
    ("NCCL", "out of memory"),
    ("MPS backend out of memory",),
)


def is_shortage(error: BaseException) -> bool:
    """Whether a device or the CPU allocator ran out of memory."""
    if "torch" not in sys.modules:  # only torch raises these errors
        return False
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(all(word in str(error) for word in words) for words in _SHORTAGES)
