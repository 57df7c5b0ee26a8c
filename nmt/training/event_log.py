"""The history of a run as JSON lines: one event a line, in the order of updates."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

from nmt.errors import NMTError
from nmt.storage.files import atomic_write

logger = logging.getLogger("nmt.training")


class EventLog:
    """Appends to a file. A write that fails is reported once and costs that line: a log is worth less than the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def rewind(self, update: int) -> None:
        """Drop the events after ``update``: the run goes on from there and will write them again."""
        if not self._path.is_file():
            return
        try:
            lines = self._path.read_text(encoding="utf-8").split("\n")  # texts may hold other separators of lines
            kept = [line for line in lines if _up_to(line, update)]
            with atomic_write(self._path) as file:
                file.write("".join(f"{line}\n" for line in kept).encode("utf-8"))
        except (OSError, UnicodeDecodeError, NMTError) as error:
            self._report(error)

    def write(self, event: dict[str, Any]) -> None:
        line = json.dumps({key: _finite(value) for key, value in event.items()}, ensure_ascii=False)
        try:
            # "backslashreplace" writes what is no text as JSON's own escape for it
            with open(self._path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{line}\n")
        except OSError as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        if not self._failed:
            logger.warning("cannot write %s, training goes on: %s", self._path, error)
        self._failed = True


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a log; none if there is no such file. Lines that are no event are left out."""
    if not path.is_file():
        return []
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the torn last line of a process that was killed
        if isinstance(event, dict) and isinstance(event.get("event"), str) and isinstance(event.get("update"), int):
            events.append(event)
    return events


def _up_to(line: str, update: int) -> bool:
    try:
        return int(json.loads(line)["update"]) <= update
    except (ValueError, KeyError, TypeError):
        return False  # the torn last line of a process that was killed


def _finite(value: Any) -> Any:
    """JSON knows no infinity and no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
