"""The history of a run as JSON lines: one event a line, in the order of updates."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nmt.errors import NMTError
from nmt.storage.files import atomic_write

logger = logging.getLogger("nmt.storage")

Event = Mapping[str, Any]


class EventLog:
    """Appends to a file. A write that fails is reported once and costs that line: a log is worth less than the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def rewind(self, update: int, skipped: int = 0) -> None:
        """Drop the events after ``update``, and of updates that were skipped those after as many as ``skipped``: the run
        goes on from there and will write them again."""
        if not self._path.is_file():
            return
        try:
            kept = [line for line in _lines(self._path) if _up_to(line, update, skipped)]
            with atomic_write(self._path) as file:
                file.write("".join(f"{line}\n" for line in kept).encode("utf-8"))
        except (OSError, NMTError) as error:
            self._report(error)

    def write(self, event: dict[str, Any]) -> None:
        line = json.dumps({key: _finite(value) for key, value in event.items()}, ensure_ascii=False)
        try:
            with open(self._path, "ab+") as file:
                # "backslashreplace" writes what is no text as JSON's own escape for it
                file.write(_gap(file) + f"{line}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._report(error)

    def events(self) -> list[dict[str, Any]]:
        """What can be read of it."""
        with contextlib.suppress(OSError):
            return read_events(self._path)
        return []

    def _report(self, error: Exception) -> None:
        if not self._failed:
            logger.warning("cannot write %s, training goes on: %s", self._path, error)
        self._failed = True


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a log; none if there is no such file. Lines that are no event are left out."""
    if not path.is_file():
        return []
    events = []
    for line in _lines(path):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # torn, by a full disk or the end of the process
        if isinstance(event, dict) and isinstance(event.get("event"), str) and isinstance(event.get("update"), int):
            events.append(event)
    return events


def stretches(events: Iterable[Event]) -> list[tuple[Event, float]]:
    """The seconds of training of each start of a run, with its event; an empty one stands for what is not in the log."""
    found: list[tuple[Event, float]] = []
    start: Event = {}
    began = now = 0.0
    for event in events:
        now = max(now, float(event.get("seconds") or 0.0))
        if event["event"] == "start":
            if now > began:
                found.append((start, now - began))
            start, began = event, now
    return [*found, (start, now - began)]


def _lines(path: Path) -> list[str]:
    """Only a line feed ends one: texts may hold other separators. A torn line may end in the middle of a letter."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def _gap(file: BinaryIO) -> bytes:
    """What has to stand between the end of a file and a new line: something if a line before was torn."""
    if not file.tell():
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def _up_to(line: str, update: int, skipped: int) -> bool:
    """An update that was skipped has the number of the next one, which says nothing of when that was."""
    try:
        event = json.loads(line)
        if event["event"] == "skipped":
            return int(event["number"]) <= skipped
        return int(event["update"]) <= update
    except (ValueError, KeyError, TypeError):
        return False  # torn, by a full disk or the end of the process


def _finite(value: Any) -> Any:
    """JSON knows no infinity and no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
