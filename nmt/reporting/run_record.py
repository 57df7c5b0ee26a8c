"""The log of a run, one event in JSON a line, in the order of updates: written, and read back with the configuration.

Also what a run costs in floating-point operations, from what was counted and from its time (``nmt.training.setup.trials``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt.errors import DataError, NMTError
from nmt.storage.files import atomic_write
from nmt.storage.run_folder import read_config

logger = logging.getLogger("nmt.training")

LOSSES = ("loss", "nll", "ppl", "seconds")  # of a validation; its other figures are scores

Event = Mapping[str, Any]


@dataclass
class EventLog:
    """Appends to a file. A write that fails is reported once and costs that line: a log is worth less than the run."""

    path: Path
    _failed: bool = False

    def rewind(self, update: int, skipped: int = 0) -> None:
        """Drop the events after ``update``, and of updates that were skipped those after as many as ``skipped``: the run
        goes on from there and will write them again."""
        if not self.path.is_file():
            return
        try:
            parsed = ((line, _event(line)) for line in _lines(self.path))
            kept = [line for line, event in parsed if event and _up_to(event, update, skipped)]
            with atomic_write(self.path) as file:
                file.write("".join(f"{line}\n" for line in kept).encode("utf-8"))
        except (OSError, NMTError) as error:
            self._report(error)

    def write(self, event: dict[str, Any]) -> None:
        known = {  # JSON knows no infinity and no NaN
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in event.items()
        }
        line = json.dumps(known, ensure_ascii=False)
        try:
            with open(self.path, "ab+") as file:
                gap = b""
                if file.tell():  # the line before may be torn
                    file.seek(-1, os.SEEK_END)
                    gap = b"" if file.read(1) == b"\n" else b"\n"
                # "backslashreplace" writes what is no text as JSON's own escape for it
                file.write(gap + f"{line}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._report(error)

    def events(self) -> list[dict[str, Any]]:
        """What can be read of it."""
        with contextlib.suppress(OSError):
            return read_events(self.path)
        return []

    def _report(self, error: Exception) -> None:
        if not self._failed:
            logger.warning("cannot write %s, training goes on: %s", self.path, error)
        self._failed = True


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a log; none if there is no such file. Lines that are no event are left out."""
    if not path.is_file():
        return []
    return [event for event in map(_event, _lines(path)) if event]


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


def _event(line: str) -> dict[str, Any] | None:
    """None for a line that is no event: torn, by a full disk or the end of the process, or written by another program."""
    with contextlib.suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict) and isinstance(event.get("event"), str) and isinstance(event.get("update"), int):
            return event if all(_is_number(event.get(key) or 0) for key in ("tokens", "seconds")) else None
    return None


def _is_number(value: object) -> bool:
    """Python reads more from JSON than we write: NaN, and 1e999 as infinite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _up_to(event: Event, update: int, skipped: int) -> bool:
    """An update that was skipped has the number of the next one, which says nothing of when that was."""
    if event["event"] == "skipped":
        number = event.get("number")
        return isinstance(number, int) and number <= skipped
    return int(event["update"]) <= update


@dataclass(frozen=True)
class RunRecord:
    """The events of a run, whichever there are, and its configuration, empty if there is none."""

    folder: Path
    events: tuple[Event, ...]
    config: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        config: Mapping[str, Any] = {}
        with contextlib.suppress(DataError):  # there is none, or it is damaged
            config = read_config(folder)
        return cls(folder, tuple(read_events(folder / "log.jsonl")), config)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def last(self, *kinds: str) -> Event:
        """The newest event of any of some kinds; empty if there is none."""
        return next((event for event in reversed(self.events) if event["event"] in kinds), {})

    def training(self, name: str) -> list[tuple[float, float]]:
        """A figure of training over updates, up to where the run stopped."""
        points, value = self.curve("train", name), self.close.get(name)
        if self.close.get("event") == "stopped" and isinstance(value, float):
            points.append((self.close["update"], value))
        return points

    def curve(self, kind: str, name: str) -> list[tuple[float, float]]:
        """A figure over updates; what was measured last counts."""
        points = {event["update"]: float(event[name]) for event in self.of(kind) if _is_number(event.get(name))}
        return sorted(points.items())

    def names(self, kind: str) -> list[str]:
        """The figures that events of a kind have, in the order of their first appearance."""
        return list(
            dict.fromkeys(name for event in self.of(kind) for name, value in event.items() if isinstance(value, float))
        )

    @property
    def scores(self) -> list[str]:
        """The metrics of validation."""
        return [name for name in self.names("valid") if name not in LOSSES]

    @property
    def update(self) -> int:
        """The last one that was made. A skipped one has the number of the next, which may not come."""
        return max((int(event["update"]) for event in self.events if event["event"] != "skipped"), default=0)

    @property
    def close(self) -> Event:
        """The event ``end`` or ``stopped`` that closes the log; empty if the run is under way or was killed."""
        last = self.last("end", "stopped", "start", "train", "valid")
        return last if last.get("event") in ("end", "stopped") else {}

    @property
    def ending(self) -> str | None:
        """Why the run is over; None: it is not, or was stopped on the way."""
        return None if self.close.get("event") != "end" else str(self.close.get("ending", ""))

    @property
    def tokens(self) -> int:
        """Target tokens trained on, as far as the log goes."""
        if self.close:
            return int(self.close.get("tokens") or 0)
        return sum(int(event.get("tokens") or 0) for event in self.of("train"))

    @property
    def seconds(self) -> float:
        return max((float(event.get("seconds") or 0) for event in self.events), default=0.0)


@dataclass(frozen=True)
class Cost:
    """What is known of the cost before training begins; None: it is not known."""

    flops_per_token: float | None = None
    device_tflops: float | None = None  # 10^12 operations a second that one device sustains
    devices: int = 1

    def figures(self, tokens: int, parts: Sequence[tuple[Event, float]]) -> dict[str, float]:
        """Operations of ``tokens`` target tokens, counted and estimated, as far as they are known. ``parts``: the starts
        of the run with their seconds; one that nobody recorded was like this one."""
        figures = {}
        if self.flops_per_token is not None:
            figures["flops_counted"] = self.flops_per_token * tokens
        estimated = flops_by_time([(start or asdict(self), seconds) for start, seconds in parts])
        if estimated is not None:
            figures["flops_estimated"] = estimated
        return figures


def flops_by_time(parts: Sequence[tuple[Event, float]]) -> float | None:
    """Operations of the starts of a run, each with its own devices. None: the rate of some is not known."""
    if any(start.get("device_tflops") is None for start, _ in parts):
        return None
    return sum(float(seconds * (start.get("devices") or 1) * start["device_tflops"] * 1e12) for start, seconds in parts)
