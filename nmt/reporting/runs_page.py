"""The page of one or several runs: a template, and the events of the runs for its script. Does not import numpy."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.errors import MissingInputError
from nmt.pages.charts import render, thinned
from nmt.pages.names import short_names
from nmt.reporting.run_record import Event
from nmt.storage.sweep_records import read_records

LOG = "log.jsonl"
_MOST_EVENTS, _FEWEST_EVENTS = 1000, 100  # of training, in a file; the former is divided by the number of runs
_MOST_VALIDATIONS = 30  # whose translations a file holds
_UNUSED = ("environment", "model", "data", "path")  # fields of events that the script does not read


@dataclass(frozen=True)
class ListedRun:
    """A run on a page. ``job``: its record in ``sweep.jsonl``; empty if it belongs to no sweep."""

    name: str
    folder: Path
    job: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return name and job for the script."""
        job = {key: self.job[key] for key in ("status", "error") if key in self.job}
        return {"name": self.name, "job": job | ({"options": dict(_options(self.job))} if self.job else {})}


def find_runs(paths: Iterable[Path]) -> list[ListedRun]:
    """Return the runs of run folders and of sweeps, each once."""
    runs: dict[str, ListedRun] = {}
    for run in (run for path in paths for run in _runs_in(path)):
        runs.setdefault(os.path.realpath(run.folder), run)
    names = [run.name for run in runs.values()]
    names = names if len(set(names)) == len(names) else short_names([run.folder for run in runs.values()])
    return [ListedRun(name, run.folder, run.job) for name, run in zip(names, runs.values())]


def _runs_in(path: Path) -> Iterator[ListedRun]:
    if not path.is_dir():
        raise MissingInputError(f"there is no run folder {path}")
    records: list[Any] = []
    with contextlib.suppress(ValueError):  # damaged
        records = [
            record
            for record in read_records(path)
            if isinstance(record, dict) and isinstance(record.get("folder"), str)
        ]
    for record in records:
        name = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in _options(record))
        yield ListedRun(name or record["folder"], path / record["folder"], record)
    if not records:
        yield ListedRun(short_names([path])[0], path)


def _options(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (override.partition("=") for override in record.get("overrides", ()))]


def events_for_script(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return what the script reads of events: six digits of a number; null for a number that is not finite."""
    return [{key: _plain(value) for key, value in event.items() if key not in _UNUSED} for event in events]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def thinned_events(events: Sequence[Event], most: int) -> list[Event]:
    """Return ``most`` events of training, those with extreme losses, and all others but many samples.

    The tokens of an event that is left out are added to the next one.
    """
    limits = {"train": most, "samples": _MOST_VALIDATIONS}
    kept = {number for number, event in enumerate(events) if event["event"] not in limits}
    for kind, limit in limits.items():
        losses = [(number, _height(event.get("loss"))) for number, event in enumerate(events) if event["event"] == kind]
        kept |= {int(number) for number, _ in thinned(losses, limit)}
    chosen, tokens = list[Event](), 0
    for number, event in enumerate(events):
        if event["event"] == "train":
            tokens += int(event.get("tokens") or 0)
            event = {**event, "tokens": tokens}
            tokens = 0 if number in kept else tokens
        chosen += [event] if number in kept else []
    return chosen


def _height(loss: object) -> float:
    """Return a loss to find extremes; null, a loss that is not finite, is the largest."""
    return float(loss) if isinstance(loss, (int, float)) and math.isfinite(loss) else math.inf


def page_data(
    title: str, runs: Sequence[ListedRun], logs: Sequence[Sequence[Event]] = (), *, single: bool, **facts: Any
) -> dict[str, Any]:
    """Return the data for the script of a page. ``logs``: events of each run; none: the script asks for them.

    ``single``: the page is that of one run, with its translations. ``facts``: first settings of the page.
    """
    most = max(_FEWEST_EVENTS, _MOST_EVENTS // max(1, len(runs)))
    events = [events_for_script(thinned_events(log, most)) for log in logs] or [[] for _ in runs]
    entries = [{**run.facts(), "events": part} for run, part in zip(runs, events)]
    settings = {"live": False, "number": None, "over": "updates", "smoothing": 0.0, **facts}
    return {"title": title, "single": single, "runs": entries, **settings}


def runs_page(data: Mapping[str, Any], template: str = "runs.html", **values: Any) -> str:
    return render(template, page=data, made=time.strftime("%Y-%m-%d %H:%M:%S"), **values)
