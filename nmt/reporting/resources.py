"""Measure the memory of training and what is available, and profile a few updates."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.profiler import profile

from nmt.config.reporting import Span
from nmt.devices.kinds import device_of
from nmt.storage.files import new_folder

logger = logging.getLogger("nmt.training")

_WARM_UP = 2  # updates of a process before the traced ones, if the option gives only their number
_ROWS = 40
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")  # writing "5" resets the peak
_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (  # limit and use of a container, in its newer and its older form
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def peak_memory(device: torch.device) -> int:
    """Return peak memory in bytes: of tensors on an accelerator, else the resident memory of the process."""
    of_device = device_of(device).peak_memory()
    if of_device is not None:
        return of_device
    # getrusage, the fallback, includes the process that started this one
    return _entry(_STATUS, "VmHWM") or _peak_of_resources()


def resident_memory() -> int:
    """Return the resident memory of this process in bytes, or its peak if the system has no such figure."""
    return _entry(_STATUS, "VmRSS") or _peak_of_resources()


def give_back(device: torch.device) -> None:
    """Return freed memory to the device and the system, and reset the peak, if they support it."""
    gc.collect()
    device_of(device).release_memory()
    device_of(device).reset_peak()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")


def _entry(path: Path, name: str) -> int | None:
    """Return the bytes of an entry in a file of Linux. None: the file or entry is missing."""
    try:
        match = re.search(rf"^{name}:\s*(\d+) kB$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return 1024 * int(match[1]) if match else None


def _peak_of_resources() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def available_memory() -> int | None:
    """Return the bytes that the system and its container have left. None: unknown."""
    amounts = []
    if (available := _entry(_MEMINFO, "MemAvailable")) is not None:
        amounts.append(available)
    else:
        with contextlib.suppress(ValueError, OSError):  # not Linux: half of all memory
            amounts.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    for limit, use in _CGROUPS:
        with contextlib.suppress(ValueError, OSError):  # no container, or one without a limit ("max")
            amounts.append(max(0, int(limit.read_text()) - int(use.read_text())))
    return min(amounts, default=None)


def most_memory(device: torch.device) -> int | None:
    """Return the memory limit of this process in bytes: that of its GPU, or an equal share of the machine. None: unknown."""
    of_device = device_of(device).most_memory()
    if of_device is not None:
        return of_device
    left = available_memory()
    return None if left is None else resident_memory() + left // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class Profiler:
    """Trace a span of updates and write ``profile-FIRST-LAST/`` to the run folder.

    A call is a context manager around one update. An error of the profiler ends the trace, not the update.
    """

    def __init__(self, span: Span, folder: Path, device: torch.device) -> None:
        self._first, self._count = span.first, span.count
        self._folder = folder
        self._device = device_of(device)
        self._running: profile | None = None
        self._traced: list[int] = []
        self._tried = False
        self._last = 0  # the last update of the process

    @contextlib.contextmanager
    def __call__(self, update: int) -> Iterator[None]:
        self._last = update
        first = self._first = self._first or update + _WARM_UP
        if self._running is None and first <= update < first + self._count:
            self._tried = True
            with _or_warn():
                profiler = profile(activities=self._device.activities)
                profiler.start()
                self._running = profiler
        if self._running is not None:
            self._traced.append(update)
        yield
        if update >= first + self._count - 1:
            self._end()

    def close(self) -> None:
        """Write the trace if training ends within the span; warn if nothing was traced."""
        self._end()
        if not self._tried:
            logger.warning("nothing was profiled: %s", self._why_not())

    def _why_not(self) -> str:
        """Return why no update was traced, and what to do."""
        if not self._last:
            return "training made no update; raise its limit, such as --max-update"
        first = self._first or 1
        if self._last < first:
            return f"training ended before update {first}; lower the first update of --profile FROM:TO"
        last = first + self._count - 1
        return f"training resumed after update {last}; raise the first update of --profile FROM:TO"

    def _end(self) -> None:
        profiler, self._running = self._running, None
        if profiler is None:
            return
        with _or_warn():
            profiler.stop()
            order = "self_device_time_total" if self._device.queues else "self_cpu_time_total"
            table = profiler.key_averages().table(sort_by=order, row_limit=_ROWS, max_name_column_width=60)
            path = self._folder / f"profile-{self._traced[0]}-{self._traced[-1]}"
            with new_folder(path, overwrite=True) as folder:
                profiler.export_chrome_trace(str(folder / "trace.json"))
                (folder / "operators.txt").write_text(table, encoding="utf-8")
            logger.info("wrote %s", path)


@contextlib.contextmanager
def _or_warn() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        logger.warning("could not write the profile, training continues: %s", error)
