"""How far a command is, on standard error: a bar on a terminal, lines of the log elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import IO, Any, TextIO

from nmt.config.choices import ProgressStyle

logger = logging.getLogger("nmt.progress")

SECONDS_BETWEEN_LINES = 30.0

Clock = Callable[[], float]
Count = Callable[[int], None]  # called with the number of units just done
Watch = Callable[[str, str, int], Count]  # opens a count: what is done, in which units, and how many there are
ReportPairs = Callable[[str, int, int], None]  # called with a split, how many of its pairs are done, and in all


def resolved(style: ProgressStyle) -> ProgressStyle:
    """``auto`` is a bar on a terminal, lines elsewhere."""
    if style is not ProgressStyle.auto:
        return style
    return ProgressStyle.bar if sys.stderr.isatty() else ProgressStyle.lines


@contextlib.contextmanager
def show_progress(style: ProgressStyle, what: str, unit: str, total: int | None = None) -> Iterator[Count]:
    """Counts units of work on a bar, or with a line every half minute and one at the end."""
    style = resolved(style)
    if style is ProgressStyle.bar:
        with contextlib.closing(open_bar(desc=what, total=total, unit=f" {unit}")) as bar:
            yield bar.update
    elif style is ProgressStyle.lines:
        lines = Lines(what, unit, total)
        yield lines.add
        lines.end()
    else:
        yield lambda count: None


@contextlib.contextmanager
def show_splits(style: ProgressStyle) -> Iterator[ReportPairs]:
    """A display for each split of a corpus, opened when its first pairs are done."""
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
    """Shows nothing of pairs that are done."""


class Lines:
    """A count told in lines of the log."""

    def __init__(self, what: str, unit: str, total: int | None, clock: Clock = time.monotonic) -> None:
        self._what, self._unit = what, unit
        self._of = f" of {total:,}" if total is not None else ""
        self._done = 0
        self._clock = clock
        self._began = self._said = clock()

    def add(self, count: int) -> None:
        self._done += count
        if self._clock() - self._said >= SECONDS_BETWEEN_LINES:
            self._say()

    def end(self) -> None:
        if self._done:
            self._say()

    def _say(self) -> None:
        self._said = self._clock()
        rate = self._done / max(self._said - self._began, 1e-9)
        logger.info(f"{self._what} {self._done:,}{self._of} {self._unit} ({rate:,.1f} a second)")


def in_lines(what: str, unit: str, total: int) -> Count:
    """A count without an end: only work that takes half a minute or more has a line."""
    return Lines(what, unit, total).add


def watched(style: ProgressStyle) -> Watch:
    """How to count work beside a bar or lines: with ``none``, silently."""
    return (lambda what, unit, total: lambda count: None) if style is ProgressStyle.none else in_lines


@contextlib.contextmanager
def going_on(
    what: str, style: ProgressStyle = ProgressStyle.auto, wait: Callable[[float], bool] | None = None
) -> Iterator[None]:
    """Around work that cannot be counted: a line every half minute says how long it has taken.

    A thread says it, which ends with the block; do not fork in there. ``wait`` waits for so many seconds and returns
    True once the block has ended.
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
    """A bar of tqdm's as wide as the terminal. If it cannot be drawn (a full disk, a closed pipe), work goes on."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # no thread of its own: workers are forked
    return tqdm(file=Expendable(sys.stderr), dynamic_ncols=True, **options)


def beside_bar(stream: IO[str] | IO[bytes]) -> AbstractContextManager[None]:
    """Around writing results to ``stream``, flushed in the end: a bar on a terminal makes room, and is drawn again below."""
    if not stream.isatty():
        return contextlib.nullcontext()
    from tqdm import tqdm

    room: AbstractContextManager[None] = tqdm.external_write_mode(file=sys.stderr)
    return room


class Expendable:
    """A stream that may be lost, to a full disk or a reader that left: from then on nothing is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> None:
        self._unless_lost(self._stream.write, text)

    def flush(self) -> None:
        self._unless_lost(self._stream.flush)

    def __eq__(self, other: object) -> bool:
        """Equal to the stream: a line of the log that tqdm writes there must know that a bar is in its way."""
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
