"""Choose the device, the precision and the threads of a process. torch is imported only by functions that need it.

A device is a name ("cpu", "cuda", "cuda:1") or torch's own object, whose text is that name.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config.checks import require_device
from nmt.config.choices import Precision
from nmt.errors import DeviceError, UsageError

if TYPE_CHECKING:
    import torch

    Device = str | torch.device


def choose_device(name: str) -> torch.device:
    """Return the device of ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` on this machine, and make it torch's current one."""
    import torch

    device = torch.device(device_named(name))
    make_current(device)
    return device


def device_named(name: str) -> str:
    """Return the name of that device: ``cpu``, ``cuda`` or ``cuda:N``."""
    if name == "auto":
        return "cuda" if has_gpu() else "cpu"
    require_device(name)
    if name.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
            raise DeviceError(
                f"device.name={name}, but no GPU can be used (torch {torch.__version__}, {built}); use --device cpu"
            )
        if int(name.partition(":")[2] or 0) >= torch.cuda.device_count():
            there = f"there are only {torch.cuda.device_count()} GPUs, numbered from 0"
            raise DeviceError(f"device.name={name}, but {there}")
    return name


def kind_of(device: Device) -> str:
    """Return ``cpu`` or ``cuda``, without the number."""
    return str(device).partition(":")[0]


def has_gpu() -> bool:
    """Whether torch can use a GPU. torch is imported only if there is a driver."""
    if "torch" not in sys.modules and sys.platform == "linux" and not _has_driver():
        return False
    import torch

    return torch.cuda.is_available()


def _has_driver() -> bool:
    """Whether torch would find the driver of an NVIDIA or AMD GPU."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True


def own_device(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the device of this rank: the ranks on one machine have different GPUs."""
    if "LOCAL_RANK" not in environment or int(environment.get("WORLD_SIZE", "1")) == 1:
        return name
    if name.startswith("cuda:"):
        raise UsageError(f"device.name={name} would give all processes the same GPU; use --device cuda with torchrun")
    if name == "cuda" or (name == "auto" and has_gpu()):
        return f"cuda:{environment['LOCAL_RANK']}"
    return name


def make_current(device: Device) -> None:
    """Make a GPU torch's current one, which its queries of memory and capabilities refer to."""
    if str(device).startswith("cuda:"):
        import torch

        torch.cuda.set_device(device)


def parameter_type(device: Device, precision: Precision) -> torch.dtype:
    """Return the dtype of a model's parameters for translation in ``precision``."""
    import torch

    require_translating(device, precision)
    return {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}.get(precision, torch.float32)


def computes_bf16(device: Device) -> bool:
    """Whether a device has instructions for bf16; without them it is emulated, which is slower than float32."""
    import torch

    if kind_of(device) == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def multiplies_tiles(device: Device) -> bool:
    """Whether a CPU multiplies whole tiles in bf16 (AMX), many times as fast as in float32."""
    import torch

    return kind_of(device) == "cpu" and bool(torch.cpu._is_amx_tile_supported())


def require_precision(device: Device, precision: Precision) -> None:
    """Refuse a precision that a device lacks, or that a GPU would emulate. Every CPU computes in bf16, some slowly."""
    on_gpu = kind_of(device) == "cuda"
    if precision is Precision.fp16 and not on_gpu:
        raise UsageError("precision fp16 is for GPUs; on a CPU use --precision bf16 or fp32")
    if precision in (Precision.bf16, Precision.bf16_output) and on_gpu and not computes_bf16(device):
        import torch

        raise DeviceError(f"{torch.cuda.get_device_name(device)} cannot compute in bf16; use --precision fp16 or fp32")


def require_translating(device: Device, precision: Precision) -> None:
    """Refuse also a precision that is only for training."""
    require_precision(device, precision)
    if precision is Precision.bf16_output:
        raise UsageError("precision bf16_output is for training; translate with --precision fp32 or bf16")


def is_shortage(error: BaseException) -> bool:
    """Whether a device or the CPU allocator ran out of memory. Errors of the latter have no class, and their text differs
    by system ("can't allocate memory", "not enough memory")."""
    if "torch" not in sys.modules:  # only torch raises these errors
        return False
    import torch

    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error) and "memory" in str(error)
    )
