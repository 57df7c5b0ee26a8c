"""Progress of a command on standard error: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import IO, Any, TextIO

from nmt.config.choices import ProgressStyle
from nmt.errors import quantity

logger = logging.getLogger("nmt.progress")

SECONDS_BETWEEN_LINES = 30.0

Clock = Callable[[], float]
Count = Callable[[int], None]  # called with the number of units just done
Watch = Callable[[str, str, int], Count]  # opens a count: what is done, in which units, and how many there are
ReportPairs = Callable[[str, int, int], None]  # called with a split, how many of its pairs are done, and in all


def resolved(style: ProgressStyle) -> ProgressStyle:
    """Resolve ``auto``: a bar on a terminal, lines elsewhere."""
    if style is not ProgressStyle.auto:
        return style
    return ProgressStyle.bar if sys.stderr.isatty() else ProgressStyle.lines


def logs_are_hidden() -> bool:
    """Whether this is a notebook or a Python shell whose logging does not show the lines of ``nmt``."""
    return hasattr(sys, "ps1") and not logging.getLogger("nmt").isEnabledFor(logging.INFO)


def announce(log: logging.Logger, line: str) -> None:
    """Log a line, and show it if a notebook or Python shell hides the log, or if nothing has configured ``logging``."""
    log.info("%s", line)
    if logs_are_hidden() or not logging.getLogger("nmt").hasHandlers():
        print(line, file=sys.stderr)


@contextlib.contextmanager
def show_progress(style: ProgressStyle, what: str, unit: str, total: int | None = None) -> Iterator[Count]:
    """Count units of work on a bar, or with a log line every 30 seconds and one at the end."""
    style = resolved(style)
    if style is ProgressStyle.bar:
        with contextlib.closing(open_bar(desc=what, total=total, unit=f" {unit}")) as bar:
            yield bar.update
    elif style is ProgressStyle.lines:
        lines = ProgressLog(what, unit, total)
        yield lines.add
        lines.end()
    else:
        yield lambda count: None


@contextlib.contextmanager
def show_splits(style: ProgressStyle) -> Iterator[ReportPairs]:
    """Show the progress of each split of a corpus, from its first pairs on."""
    with contextlib.ExitStack() as displays:
        counts: dict[str, Count] = {}
        shown: dict[str, int] = {}

        def show(split: str, done: int, total: int) -> None:
            if split not in counts:
                counts[split] = displays.enter_context(show_progress(style, split, "pairs", total))
            counts[split](done - shown.get(split, 0))
            shown[split] = done

        yield show


def unseen(split: str, done: int, total: int) -> None:
    """A ``ReportPairs`` that shows nothing."""


class ProgressLog:
    """Progress as log lines: units done and their rate, and if ``total`` is known, the percentage and the time left."""

    def __init__(self, what: str, unit: str, total: int | None, clock: Clock = time.monotonic) -> None:
        self._what, self._unit, self._total = what, unit.removesuffix("s"), total
        self._done = 0
        self._clock = clock
        self._began = self._last_logged = clock()

    def add(self, count: int) -> None:
        self._done += count
        if self._clock() - self._last_logged >= SECONDS_BETWEEN_LINES:
            self._log()

    def end(self) -> None:
        if self._done:
            self._log()

    def _log(self) -> None:
        self._last_logged = self._clock()
        rate = self._done / max(self._last_logged - self._began, 1e-9)
        done, left = quantity(self._done, self._unit), ""
        if self._total is not None:
            missing = max(self._total - self._done, 0)
            done = f"{self._done:,} of {quantity(self._total, self._unit)}"
            left = f", {100 * self._done / max(self._total, 1):.0f} %"
            if missing and self._done:
                left += f", {timedelta(seconds=round(missing / rate))} left"
        logger.info(f"{self._what} {done} ({rate:,.1f} a second{left})")


def in_lines(what: str, unit: str, total: int) -> Count:
    """Return a count that logs every 30 seconds, and nothing for shorter work."""
    return ProgressLog(what, unit, total).add


def watched(style: ProgressStyle) -> Watch:
    """Return a ``Watch`` that logs lines; with ``none``, it is silent."""
    return (lambda what, unit, total: lambda count: None) if style is ProgressStyle.none else in_lines


@contextlib.contextmanager
def going_on(
    what: str, style: ProgressStyle = ProgressStyle.auto, wait: Callable[[float], bool] | None = None
) -> Iterator[None]:
    """Log every half minute how long the work in the block has taken; for work whose progress cannot be counted.

    A thread logs until the block ends; do not fork in the block. ``wait`` waits for the given number of
    seconds and returns True once the block has ended.
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


def open_bar(**options: Any) -> Any:
    """Open a tqdm bar as wide as the terminal. If it cannot be drawn (full disk, closed pipe), work continues."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # no monitor thread, since workers are forked
    return tqdm(file=Expendable(sys.stderr), dynamic_ncols=True, **options)


def beside_bar(stream: IO[str] | IO[bytes]) -> AbstractContextManager[None]:
    """Clear the bar while results are written to a terminal ``stream``, and draw it again below; the writer flushes."""
    if not stream.isatty():
        return contextlib.nullcontext()
    from tqdm import tqdm

    room: AbstractContextManager[None] = tqdm.external_write_mode(file=sys.stderr)
    return room


class Expendable:
    """A stream that is ignored after its first error, such as a full disk or a closed pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> None:
        self._unless_lost(self._stream.write, text)

    def flush(self) -> None:
        self._unless_lost(self._stream.flush)

    def __eq__(self, other: object) -> bool:
        """Equal to the stream, so that tqdm clears the bar before a log line on it."""
        return other is self or other is self._stream

    def __hash__(self) -> int:
        return hash(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # the bar asks for the encoding and the width

    def _unless_lost(self, action: Callable[..., object], *arguments: str) -> None:
        try:
            if not self._lost:
                action(*arguments)
        except (OSError, ValueError):  # ValueError: it was closed
            self._lost = True
