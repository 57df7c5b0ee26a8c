"""Choosing where and in which number format the work is done. torch is imported where a GPU or torch itself is asked.

A device is a name ("cpu", "cuda", "cuda:1") or torch's own object, whose text is that name.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
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

# Microseconds of computing, of all cores together, in a period of so many: a container's share, in its newer and older form.
_SHARES_OF_TIME = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)

_TOPOLOGY = Path("/sys/devices/system/cpu")
_PROCESSORS = Path("/proc/cpuinfo")


def choose_device(name: str) -> torch.device:
    """The device that ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` means on this machine."""
    import torch

    return torch.device(device_named(name))


def device_named(name: str) -> str:
    """The same by its name: ``cpu``, ``cuda`` or ``cuda:N``."""
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
    """``cpu`` or ``cuda``, without the number."""
    return str(device).partition(":")[0]


def has_gpu() -> bool:
    """Whether torch can use a GPU. It is imported to say so only where there is a driver."""
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
    """The device of this process: each process of a machine has a GPU of its own."""
    if "LOCAL_RANK" not in environment or int(environment.get("WORLD_SIZE", "1")) == 1:
        return name
    if name.startswith("cuda:"):
        raise UsageError(f"device.name={name} would give all processes the same GPU; use --device cuda with torchrun")
    if name == "cuda" or (name == "auto" and has_gpu()):
        return f"cuda:{environment['LOCAL_RANK']}"
    return name


def make_current(device: Device) -> None:
    """Let what asks torch about "the" GPU (its peak of memory, what it can do) mean this one."""
    if str(device).startswith("cuda:"):
        import torch

        torch.cuda.set_device(device)


def set_threads(wanted: int | None) -> None:
    """How many threads torch computes with on a CPU: as ``wanted``, or else as the user's environment says, or else one
    for each core that this process may use. Torch would count those of the whole machine, also in a container that was
    given two of them."""
    import torch

    if wanted is None and not os.environ.get("OMP_NUM_THREADS"):
        wanted = min(usable_cores(), torch.get_num_threads())
    if wanted is not None:
        torch.set_num_threads(wanted)


def count_threads(wanted: int | None) -> int:
    """How many threads that are, before torch is imported."""
    if wanted is None:
        given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
        return int(given) if given.isdecimal() and int(given) > 0 else min(usable_cores(), _whole_cores())
    return wanted


def _whole_cores() -> int:
    """Cores that this process may run on, where some of them may look like two: torch counts them once too."""
    numbers = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    siblings = [_TOPOLOGY / f"cpu{number}" / "topology" / "thread_siblings_list" for number in numbers]
    return len({file.read_text() if file.exists() else number for number, file in zip(numbers, siblings)})


def processor_name() -> str:
    """As its maker calls it, or at least its kind of instructions."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", _PROCESSORS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    except (OSError, UnicodeDecodeError):  # another system
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Those that the system lets this process run on, or as many as its container's share of time is worth."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in _SHARES_OF_TIME:
        try:
            quota, period = map(int, " ".join(file.read_text() for file in files).split())
        except (OSError, ValueError):  # another form, another system, or "max"
            continue
        if quota > 0 and period > 0:  # -1: no limit
            return max(1, min(cores, math.ceil(quota / period)))
    return cores


def parameter_type(device: Device, precision: Precision) -> torch.dtype:
    """The type that a model's parameters take for translating in ``precision``."""
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
    """Refuse what a device cannot do, or what a GPU would only emulate; every CPU computes in bf16, if slowly."""
    on_gpu = kind_of(device) == "cuda"
    if precision is Precision.fp16 and not on_gpu:
        raise UsageError("precision fp16 is for GPUs; on a CPU use --precision bf16 or fp32")
    if precision in (Precision.bf16, Precision.bf16_output) and on_gpu and not computes_bf16(device):
        import torch

        raise DeviceError(f"{torch.cuda.get_device_name(device)} cannot compute in bf16; use --precision fp16 or fp32")


def require_translating(device: Device, precision: Precision) -> None:
    """The same, and what is not for translating."""
    require_precision(device, precision)
    if precision is Precision.bf16_output:
        raise UsageError("precision bf16_output is for training; translate with --precision fp32 or bf16")


def is_shortage(error: BaseException) -> bool:
    """Whether a device, or the CPU's allocator, had no memory left. The latter has no class of its own, and its words
    differ by system ("can't allocate memory", "not enough memory")."""
    if "torch" not in sys.modules:  # it raises both
        return False
    import torch

    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error) and "memory" in str(error)
    )
