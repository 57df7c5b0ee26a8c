"""Measure the time of a run by activity, and the CPU share of this process.

Each moment belongs to one activity, so the sum over activities is the elapsed time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

COMPUTING, READING, WAITING = "computing", "reading", "waiting"  # waiting: for other ranks
VALIDATION, CHECKPOINTS = "validation", "checkpoints"
ACTIVITIES = (COMPUTING, READING, WAITING, VALIDATION, CHECKPOINTS)

_THREADS = Path("/proc/self/task")


class Stopwatch:
    """Charge time to the innermost running activity, or else to computing. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.activity = COMPUTING  # the running one
        self._seconds = dict.fromkeys(ACTIVITIES, 0.0)
        self._since = clock()

    @contextlib.contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Charge the time of the block to ``activity``."""
        before = self.switch(activity)
        try:
            yield
        finally:
            self.switch(before)

    def switch(self, activity: str) -> str:
        """Charge the time from now on to ``activity``. Returns the activity until now."""
        now = self._clock()
        self._seconds[self.activity] += now - self._since
        before, self.activity, self._since = self.activity, activity, now
        return before

    def take(self) -> dict[str, float]:
        """Return the seconds of each activity since the last call, and begin again at zero."""
        self.switch(self.activity)
        seconds, self._seconds = self._seconds, dict.fromkeys(ACTIVITIES, 0.0)
        return seconds


class ProcessorShare:
    """The time in which threads of this process ran, divided by the time in which they ran or waited for a processor.

    It is 1 on an idle machine, and 1/2 if as many threads of other processes compete. It is known on Linux only.
    """

    def __init__(self) -> None:
        self._before = _processor_times()

    def take(self) -> float | None:
        """Return the share since the last call. None: unknown, or no thread was ready to run."""
        before, self._before = self._before, _processor_times()
        used = queued = 0
        for thread, (now_used, now_queued) in self._before.items():
            earlier_used, earlier_queued = before.get(thread, (0, 0))
            used, queued = used + now_used - earlier_used, queued + now_queued - earlier_queued
        return used / (used + queued) if used > 0 and queued >= 0 else None


def _processor_times() -> dict[str, tuple[int, int]]:
    """Return for each thread its nanoseconds on a processor, and those in which it waited for one."""
    times = {}
    with contextlib.suppress(OSError):
        for thread in _THREADS.iterdir():
            with contextlib.suppress(OSError, ValueError):  # the thread has ended
                used, queued, _ = (thread / "schedstat").read_text().split()
                times[thread.name] = int(used), int(queued)
    return times
