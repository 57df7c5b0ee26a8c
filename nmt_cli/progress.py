"""Showing how far a command is, on standard error: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from tqdm import tqdm

from nmt.config.choices import ProgressStyle
from nmt_cli.streams import expendable

logger = logging.getLogger("nmt.progress")

_SECONDS_BETWEEN_LINES = 30.0


@contextlib.contextmanager
def show_progress(
    style: ProgressStyle, what: str, unit: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of units just done."""
    if style is ProgressStyle.auto:
        style = ProgressStyle.bar if sys.stderr.isatty() else ProgressStyle.lines
    if style is ProgressStyle.bar:
        bar = _Bar(what, unit, total)
        try:
            yield bar.add
        finally:
            bar.close()
    elif style is ProgressStyle.lines:
        lines = _Lines(what, unit, total)
        yield lines.add
        lines.end()
    else:
        yield lambda count: None


class _Bar:
    """A bar that nobody can see any more (a full disk, a closed pipe) does not stop the work."""

    def __init__(self, what: str, unit: str, total: int | None) -> None:
        self._bar: tqdm[NoReturn] | None = None
        tqdm.monitor_interval = 0  # no thread of its own: workers are forked
        with expendable():
            self._bar = tqdm(desc=what, total=total, unit=f" {unit}", file=sys.stderr)

    def add(self, count: int) -> None:
        if self._bar is not None:
            with expendable():
                self._bar.update(count)

    def close(self) -> None:
        if self._bar is not None:
            with expendable():
                self._bar.close()


class _Lines:
    """A line in the log now and then, and one at the end."""

    def __init__(self, what: str, unit: str, total: int | None) -> None:
        self._what, self._unit = what, unit
        self._of = f" of {total:,}" if total is not None else ""
        self._done = 0
        self._began = self._said = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            self._say()

    def end(self) -> None:
        if self._done:
            self._say()

    def _say(self) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        logger.info(f"{self._what} {self._done:,}{self._of} {self._unit} ({self._done / seconds:,.1f} a second)")
