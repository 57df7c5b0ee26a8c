"""Choose the device, the precision and the threads of a process. torch is imported only by functions that need it.

A device is a name ("cpu", "cuda", "cuda:1") or torch's own object, whose text is that name.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config.checks import require_device
from nmt.config.choices import Precision
from nmt.errors import DeviceError, UsageError

if TYPE_CHECKING:
    import torch

    Device = str | torch.device

# A container's limit, by cgroups of version 2 and 1: microseconds of computing, of all cores together, in a period.
_SHARES_OF_TIME = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)

# Variables that set how an idle OpenMP thread waits: in every runtime, in GNU's, and in Intel's and LLVM's.
WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SPIN_COUNT = 3000  # GNU's default is 300,000; docs/performance.md has the measurements

_TOPOLOGY = Path("/sys/devices/system/cpu")
_PROCESSORS = Path("/proc/cpuinfo")


def choose_device(name: str) -> torch.device:
    """Return the device of ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` on this machine."""
    import torch

    return torch.device(device_named(name))


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


def set_threads(option: int | None) -> None:
    """Set the number of threads that torch uses on a CPU: ``option``, else OMP_NUM_THREADS, else one per usable core.

    Torch itself counts the cores of the whole machine, even in a container that is limited to two of them. How these
    threads wait for work is decided earlier, by ``limit_spinning``.
    """
    import torch

    if option is None and not os.environ.get("OMP_NUM_THREADS"):
        option = min(usable_cores(), torch.get_num_threads())
    if option is not None:
        torch.set_num_threads(option)


def limit_spinning(environment: MutableMapping[str, str] = os.environ) -> None:
    """Make idle OpenMP threads sleep after ``SPIN_COUNT`` checks for work, unless the user set a wait variable.

    An idle thread that spins takes its core from other processes, and from the thread that it waits for. GNU's runtime
    reads the variable once, when torch or sentencepiece loads it. Call this function before either is imported.
    """
    if not any(name in environment for name in WAIT_VARIABLES):
        environment["GOMP_SPINCOUNT"] = str(SPIN_COUNT)


def count_threads(option: int | None) -> int:
    """Return the number that ``set_threads`` would set, without importing torch."""
    if option is None:
        variable = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
        return int(variable) if variable.isdecimal() and int(variable) > 0 else min(usable_cores(), _whole_cores())
    return option


def _whole_cores() -> int:
    """Count the physical cores that this process may run on, as torch does: hyper-threads of one core count once."""
    numbers = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    siblings = [_TOPOLOGY / f"cpu{number}" / "topology" / "thread_siblings_list" for number in numbers]
    return len({file.read_text() if file.exists() else number for number, file in zip(numbers, siblings)})


def processor_name() -> str:
    """Return the name of the processor, or its architecture if the name is unknown."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", _PROCESSORS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    except (OSError, UnicodeDecodeError):  # another system
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Count the cores that this process may run on, limited by its container's share of computing time."""
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
