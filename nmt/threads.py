"""The processor, its cores, and the number of threads that compute. torch is imported only by functions that need it."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import MutableMapping
from pathlib import Path

# A container's limit, by cgroups of version 2 and 1: microseconds of computing, of all cores together, in a period.
_SHARES_OF_TIME = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)

# Variables that set how an idle OpenMP thread waits: in every runtime, in GNU's, and in Intel's and LLVM's.
WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SPIN_COUNT = 3000  # GNU's default is 300,000; docs/how-to/fast-translation.md has measurements

_TOPOLOGY = Path("/sys/devices/system/cpu")
_PROCESSORS = Path("/proc/cpuinfo")


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
