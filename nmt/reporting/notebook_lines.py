"""The progress of a run below a cell of a notebook whose logging hides the lines of ``nmt``."""

from __future__ import annotations

import sys
import time

from nmt.pages.numbers import figure
from nmt.reporting.callbacks import Callback, RunEvent

_SECONDS = 0.5  # between figures of updates


class NotebookLines(Callback):
    """Show the last update in a line that is overwritten, and each validation in a line that stays."""

    def __init__(self) -> None:
        self._written = 0.0

    def on_update(self, event: RunEvent) -> None:
        if time.monotonic() - self._written >= _SECONDS:
            self._write(event, "", "loss", "lr", end="")

    def on_validation(self, event: RunEvent) -> None:
        self._write(event, " | validation", *(name for name in event.figures if name != "seconds"))

    def on_end(self, event: RunEvent) -> None:
        self._write(event, f" | {event.ending}")

    def _write(self, event: RunEvent, what: str, *names: str, end: str = "\n") -> None:
        figures = "".join(f" | {name} {figure(event.figures[name])}" for name in names)
        line = f"epoch {event.epoch} | update {event.update}{what}{figures}"
        print(f"\r{line:<79}", end=end, file=sys.stderr, flush=True)
        self._written = time.monotonic()
