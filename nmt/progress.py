"""Saying that work goes on: lines of the log, at least one every half minute while there is something to count."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from nmt.config.choices import ProgressStyle

logger = logging.getLogger("nmt.progress")

SECONDS_BETWEEN_LINES = 30.0

Clock = Callable[[], float]
Count = Callable[[int], None]  # called with the number of units just done
Watch = Callable[[str, str, int], Count]  # opens a count: what is done, in which units, and how many there are


class Pace:
    """Tells when the next line is due: so many seconds after the last one."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = self._said = clock()

    def due(self) -> bool:
        return self._clock() - self._said >= SECONDS_BETWEEN_LINES

    def said(self) -> None:
        self._said = self._clock()

    def seconds(self) -> float:
        """Since it began."""
        return max(self._clock() - self._began, 1e-9)


class Lines:
    """Counts units of work, with a line now and then, and one at the end."""

    def __init__(self, what: str, unit: str, total: int | None, clock: Clock = time.monotonic) -> None:
        self._what, self._unit = what, unit
        self._of = f" of {total:,}" if total is not None else ""
        self._done = 0
        self._pace = Pace(clock)

    def add(self, count: int) -> None:
        self._done += count
        if self._pace.due():
            self._say()

    def end(self) -> None:
        if self._done:
            self._say()

    def _say(self) -> None:
        self._pace.said()
        rate = self._done / self._pace.seconds()
        logger.info(f"{self._what} {self._done:,}{self._of} {self._unit} ({rate:,.1f} a second)")


def in_lines(what: str, unit: str, total: int) -> Count:
    """A count whose end others tell of: only work that takes long has a line."""
    return Lines(what, unit, total).add


def in_silence(what: str, unit: str, total: int) -> Count:
    """A count that nobody is told of."""
    return lambda count: None


def watched(style: ProgressStyle) -> Watch:
    """How work beside a bar is told of: where nothing is to be shown, not at all."""
    return in_silence if style is ProgressStyle.none else in_lines


@contextlib.contextmanager
def going_on(
    what: str, style: ProgressStyle = ProgressStyle.auto, wait: Callable[[float], bool] | None = None
) -> Iterator[None]:
    """Around work in one piece, which nothing can be counted of: a line every half minute says how long it has taken.

    A thread of its own says it, which ends with the block; no process is forked in there. ``wait`` waits for so many
    seconds, or less if the block ends, which it returns.
    """
    if style is ProgressStyle.none:
        yield
        return
    over = threading.Event()
    waits = wait or over.wait

    def tell() -> None:
        seconds = 0.0
        while not waits(SECONDS_BETWEEN_LINES):
            seconds += SECONDS_BETWEEN_LINES
            logger.info(f"{what}: {seconds:.0f} seconds so far")

    thread = threading.Thread(target=tell, name="nmt progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
