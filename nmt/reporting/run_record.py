"""Write the log of a run, one JSON event per line in the order of updates, and read it with the configuration.

Also compute the floating-point operations of a run, from counts and from its time (``nmt.training.setup.operations``).
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
from typing import Any, TypeGuard

from nmt.config.sections import metric_of
from nmt.errors import DataError, NMTError
from nmt.reporting.stopwatch import ACTIVITIES, WAITING
from nmt.storage.files import atomic_write
from nmt.storage.run_folder import read_config

logger = logging.getLogger("nmt.training")

LOSSES = ("loss", "nll", "ppl", "seconds")  # of a validation; its other figures are scores

_IN_WORDS = {WAITING: "waiting for ranks"}

Event = Mapping[str, Any]


@dataclass
class EventLog:
    """Append events to a file. Failed writes are reported once and lose their events, but never end the run."""

    path: Path
    _failed: bool = False

    def rewind(self, update: int, skipped: int = 0) -> None:
        """Drop the events after ``update``, and after ``skipped`` skipped updates: the resumed run repeats them."""
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
        known = {  # JSON has no infinity and no NaN
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
                # "backslashreplace" writes unpaired surrogates as JSON's escapes
                file.write(gap + f"{line}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._report(error)

    def events(self) -> list[dict[str, Any]]:
        with contextlib.suppress(OSError):
            return read_events(self.path)
        return []

    def _report(self, error: Exception) -> None:
        if not self._failed:
            logger.warning("cannot write %s, training continues: %s", self.path, error)
        self._failed = True


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a log, without malformed lines. Empty if there is no such file."""
    if not path.is_file():
        return []
    return parsed(_lines(path))


def parsed(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the events of lines of a log, without malformed lines."""
    return [event for event in map(_event, lines) if event]


def stretches(events: Iterable[Event]) -> list[tuple[Event, float]]:
    """Return each start of a run with its seconds of training. An empty event represents a start missing from the log."""
    starts: list[tuple[Event, float]] = []
    start: Event = {}
    began = now = 0.0
    for event in events:
        now = max(now, float(event.get("seconds") or 0.0))
        if event["event"] == "start":
            if now > began:
                starts.append((start, now - began))
            start, began = event, now
    return [*starts, (start, now - began)]


def time_in_words(event: Event) -> list[tuple[str, str]]:
    """Return the shares of the time by activity, and the CPU share, as far as an event has them."""
    times = event.get("times")
    spent = {name: times.get(name) for name in ACTIVITIES} if isinstance(times, dict) else {}
    known = {name: float(seconds) for name, seconds in spent.items() if _is_number(seconds) and seconds > 0}
    whole = sum(known.values())
    rows = [(_IN_WORDS.get(name, name), f"{100 * seconds / whole:.1f} %") for name, seconds in known.items()]
    if _is_number(share := event.get("processor_share")):
        rows.append(("CPU share", f"{100 * float(share):.0f} %"))
    return rows


def _lines(path: Path) -> list[str]:
    """Split a log at line feeds only, because texts contain other separators. A torn line may end within a character."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def _event(line: str) -> dict[str, Any] | None:
    """Parse a line of the log. None: it is torn, or not an event of ours."""
    with contextlib.suppress(ValueError, RecursionError):
        event = json.loads(line)
        if isinstance(event, dict) and isinstance(event.get("event"), str) and isinstance(event.get("update"), int):
            return event if all(_is_number(event.get(key) or 0) for key in ("tokens", "seconds")) else None
    return None


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number. Python reads NaN from JSON, and 1e999 as infinity."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _up_to(event: Event, update: int, skipped: int) -> bool:
    """Whether an event is not after ``update``. Skipped updates are compared by their own number."""
    if event["event"] == "skipped":
        number = event.get("number")
        return isinstance(number, int) and number <= skipped
    return int(event["update"]) <= update


@dataclass(frozen=True)
class RunRecord:
    """The events and the configuration of a run; each is empty if it is missing."""

    folder: Path
    events: tuple[Event, ...]
    config: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        return cls.of_events(folder, read_events(folder / "log.jsonl"))

    @classmethod
    def of_events(cls, folder: Path, events: Iterable[Event]) -> RunRecord:
        config: Mapping[str, Any] = {}
        with contextlib.suppress(DataError):  # the configuration is missing or damaged
            config = read_config(folder)
        return cls(folder, tuple(events), config)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def last(self, *kinds: str) -> Event:
        """Return the last event of these kinds; empty if the run has none."""
        return next((event for event in reversed(self.events) if event["event"] in kinds), {})

    def training(self, name: str) -> list[tuple[float, float]]:
        """Return a figure of training over updates, including the last one of the run."""
        points, value = self.curve("train", name), self.close.get(name)
        if isinstance(value, float):
            points.append((self.close["update"], value))
        return points

    def curve(self, kind: str, name: str) -> list[tuple[float, float]]:
        """Return a figure over updates. For a repeated update, the last value counts."""
        points = {event["update"]: float(event[name]) for event in self.of(kind) if _is_number(event.get(name))}
        return sorted(points.items())

    def names(self, kind: str) -> list[str]:
        """Return the names of figures in events of a kind, in order of appearance."""
        return list(
            dict.fromkeys(name for event in self.of(kind) for name, value in event.items() if isinstance(value, float))
        )

    @property
    def scores(self) -> list[str]:
        return [name for name in self.names("valid") if metric_of(name) not in LOSSES]

    @property
    def update(self) -> int:
        """The last update that was applied. Skipped ones have the number of the next update."""
        return max((int(event["update"]) for event in self.events if event["event"] != "skipped"), default=0)

    @property
    def close(self) -> Event:
        """The event ``end`` or ``stopped`` that closes the log; empty if the run is running or was killed."""
        last = self.last("end", "stopped", "start", "train", "valid")
        return last if last.get("event") in ("end", "stopped") else {}

    @property
    def tokens(self) -> int:
        """Target tokens trained on, according to the log."""
        if self.close:
            return int(self.close.get("tokens") or 0)
        return sum(int(event.get("tokens") or 0) for event in self.of("train"))

    @property
    def seconds(self) -> float:
        return max((float(event.get("seconds") or 0) for event in self.events), default=0.0)


@dataclass(frozen=True)
class Cost:
    """Facts about the cost that are known before training. None: unknown."""

    flops_per_token: float | None = None
    device_tflops: float | None = None  # 10^12 operations a second that one device sustains
    devices: int = 1

    def figures(self, tokens: int, parts: Sequence[tuple[Event, float]]) -> dict[str, float]:
        """Return the operations for ``tokens`` target tokens, counted and estimated, if known.

        ``parts``: the starts of the run with their seconds; a start that is missing from the log used these devices.
        """
        figures = {}
        if self.flops_per_token is not None:
            figures["flops_counted"] = self.flops_per_token * tokens
        estimated = flops_by_time([(start or asdict(self), seconds) for start, seconds in parts])
        if estimated is not None:
            figures["flops_estimated"] = estimated
        return figures


def flops_by_time(parts: Sequence[tuple[Event, float]]) -> float | None:
    """Return the operations of all starts of a run, each on its own devices. None: the rate of a device is unknown."""
    if any(start.get("device_tflops") is None for start, _ in parts):
        return None
    return sum(float(seconds * (start.get("devices") or 1) * start["device_tflops"] * 1e12) for start, seconds in parts)
