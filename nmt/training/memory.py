"""The most memory that training has held so far."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")


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
