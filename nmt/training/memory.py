"""The most memory that training has held so far, and how much more there is."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (  # limit and use of a container, in its newer and its older form
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def peak_memory(device: torch.device) -> int:
    """In bytes: what torch's tensors took at most on a CUDA device; elsewhere the resident memory of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _peak_of_status() or _peak_of_resources()


def _peak_of_status() -> int:
    """VmHWM, on Linux. What the kernel's ``getrusage`` says there includes the process that started this one."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
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
