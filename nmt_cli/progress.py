"""Showing how far a command is, on standard error: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NoReturn

from nmt.config.choices import ProgressStyle
from nmt.progress import Count, Lines
from nmt_cli.streams import expendable

if TYPE_CHECKING:  # where no bar is shown, nothing of it is imported
    from tqdm import tqdm


@contextlib.contextmanager
def show_progress(style: ProgressStyle, what: str, unit: str, total: int | None = None) -> Iterator[Count]:
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
        lines = Lines(what, unit, total)
        yield lines.add
        lines.end()
    else:
        yield lambda count: None


@contextlib.contextmanager
def beside_bar(stream: IO[str] | IO[bytes]) -> Iterator[None]:
    """Around writing results to ``stream``, flushed in the end: on a terminal a bar makes room for them, and is drawn
    again below."""
    if not stream.isatty():
        yield
        return
    from tqdm import tqdm

    with tqdm.external_write_mode(file=sys.stderr):
        yield


class _Bar:
    """A bar that nobody can see any more (a full disk, a closed pipe) does not stop the work."""

    def __init__(self, what: str, unit: str, total: int | None) -> None:
        from tqdm import tqdm

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
