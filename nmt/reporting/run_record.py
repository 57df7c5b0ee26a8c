"""The log and the configuration of a run folder, read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nmt.storage.event_log import Event, read_events

_LOSSES = ("loss", "nll", "ppl", "seconds")  # of a validation; its other figures are scores


@dataclass(frozen=True)
class RunRecord:
    """The events of a run, whichever there are, and its configuration, empty if there is none."""

    folder: Path
    events: tuple[Event, ...]
    config: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        return cls(folder, tuple(read_events(folder / "log.jsonl")), _configuration(folder / "config.yaml"))

    @classmethod
    def of_log(cls, log: Path) -> RunRecord:
        """Of a log alone, whatever its name."""
        return cls(log.parent, tuple(read_events(log)), {})

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def last(self, kind: str) -> Event:
        """The newest event of a kind; empty if there is none."""
        return next((event for event in reversed(self.events) if event["event"] == kind), {})

    def training(self, name: str) -> list[tuple[float, float]]:
        """A figure of training over updates, up to where the run stopped."""
        points, value = self.curve("train", name), self.close.get(name)
        if self.close.get("event") == "stopped" and isinstance(value, float):
            points.append((self.close["update"], value))
        return points

    def curve(self, kind: str, name: str) -> list[tuple[float, float]]:
        """A figure over updates; what was measured last counts."""
        points = {
            event["update"]: float(event[name])
            for event in self.of(kind)
            if isinstance(event.get(name), (int, float)) and not isinstance(event[name], bool)
        }
        return sorted(points.items())

    def names(self, kind: str) -> list[str]:
        """The figures that events of a kind have, in the order of their first appearance."""
        return list(
            dict.fromkeys(name for event in self.of(kind) for name, value in event.items() if isinstance(value, float))
        )

    @property
    def scores(self) -> list[str]:
        """The metrics of validation."""
        return [name for name in self.names("valid") if name not in _LOSSES]

    @property
    def update(self) -> int:
        """The last one that was made. A skipped one has the number of the next, which may not come."""
        return max((int(event["update"]) for event in self.events if event["event"] != "skipped"), default=0)

    @property
    def close(self) -> Event:
        """The event ``end`` or ``stopped`` that closes the log; empty if the run is under way or was killed."""
        lasting = ("end", "stopped", "start", "train", "valid")
        last = next((event for event in reversed(self.events) if event["event"] in lasting), {})
        return last if last.get("event") in ("end", "stopped") else {}

    @property
    def ending(self) -> str | None:
        """Why the run is over; None: it is not, or was stopped on the way."""
        return None if self.close.get("event") != "end" else str(self.close["ending"])

    @property
    def tokens(self) -> int:
        """Target tokens trained on, as far as the log goes."""
        if self.close:
            return int(self.close["tokens"])
        return sum(int(event.get("tokens") or 0) for event in self.of("train"))

    @property
    def seconds(self) -> float:
        return max((float(event.get("seconds") or 0) for event in self.events), default=0.0)


def _configuration(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return {}
    return tree if isinstance(tree, dict) else {}
