"""The most memory that training has held so far, and how much more there is."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import resource
import sys
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")  # "5" lets the peak start again from what is held
_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (  # limit and use of a container, in its newer and its older form
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def peak_memory(device: torch.device) -> int:
    """In bytes: what torch's tensors took at most on a CUDA device; elsewhere the resident memory of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # getrusage, the fallback, includes the process that started this one
    return _of_status("VmHWM") or _peak_of_resources()


def resident_memory() -> int:
    """Bytes that this process holds now; where the system does not say, the most that it has held."""
    return _of_status("VmRSS") or _peak_of_resources()


def give_back() -> None:
    """Return freed memory to the system and let the peak start again, as far as the system allows it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")


def _of_status(entry: str) -> int:
    """An entry of this process's status on Linux, in bytes, else 0."""
    try:
        found = re.search(rf"^{entry}:\s*(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def _peak_of_resources() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def available_memory() -> int | None:
    """Bytes that this process may still take before the system or its container runs short; None: unknown."""
    found = [_available_of_system(), *(_left_in_container(limit, use) for limit, use in _CGROUPS)]
    return min((figure for figure in found if figure is not None), default=None)


def _available_of_system() -> int | None:
    """MemAvailable on Linux; elsewhere half of all memory."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return 1024 * int(found[1])
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        return None


def _left_in_container(limit: Path, use: Path) -> int | None:
    try:
        return max(0, int(limit.read_text()) - int(use.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None
