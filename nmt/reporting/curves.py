"""Training curves of one or several runs in one picture or page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.errors import MissingInputError
from nmt.pages.charts import Chart, Point, Series, render
from nmt.pages.names import short_names
from nmt.pages.numbers import duration, figure
from nmt.reporting.plotting import drawn_charts
from nmt.reporting.run_record import RunRecord
from nmt.storage.files import atomic_write

OVER = {"updates": "update", "tokens": "target token", "seconds": "second"}


@dataclass(frozen=True)
class _Run:
    """A run under the name that it has in the picture."""

    name: str
    record: RunRecord

    def clock(self, over: str) -> list[Point]:
        """How many target tokens or seconds of training there were at an update, as the log has them."""
        total, found = 0.0, [(0.0, 0.0)]
        for event in sorted(self.record.of("train"), key=lambda event: int(event["update"])):
            value = float(event.get(over) or 0.0)
            total = total + value if over == "tokens" else max(total, value)
            found.append((float(event["update"]), total))
        return found

    def over(self, points: Sequence[Point], over: str) -> list[Point]:
        """Points over updates, over what is asked for instead."""
        if over == "updates" or not points:
            return list(points)
        updates, readings = zip(*self.clock(over))
        places = np.interp([update for update, _ in points], updates, readings).tolist()
        return [(place, value) for place, (_, value) in zip(places, points)]


def plot_curves(folders: Sequence[Path], output: Path, over: str = "updates", smoothing: float = 0.0) -> None:
    """Losses and validation scores of runs over "updates", "tokens" or "seconds", as SVG, PNG or HTML.

    ``smoothing``: the share of the running mean that each value of the training loss keeps, from 0 to below 1.
    """
    runs = [_Run(name, _read(folder)) for name, folder in zip(short_names(folders), folders)]
    charts = [chart for chart in _charts(runs, over, smoothing) if chart.drawn]
    if not charts:
        raise MissingInputError(
            f"{', '.join(map(str, folders))}: the log has no losses yet, so there is no curve to draw"
        )
    if output.suffix != ".html":
        drawn_charts(charts, "").written(output)
        return
    rows = [_row(run) for run in runs]
    title = ", ".join(run.name for run in runs)
    page = render("curves.html", title=title, charts=charts, over=OVER[over], smoothing=smoothing, rows=rows)
    with atomic_write(output) as file:
        file.write(page.encode("utf-8", "replace"))


def smoothed(points: Sequence[Point], share: float) -> list[Point]:
    """Running means m_i = share m_(i-1) + (1 - share) x_i, divided by the sum of their weights, so that they start right."""
    found, mean, weight = [], 0.0, 0.0
    for place, value in points:
        mean, weight = share * mean + (1 - share) * value, share * weight + (1 - share)
        found.append((place, mean / weight))
    return found


def _charts(runs: Sequence[_Run], over: str, smoothing: float) -> list[Chart]:
    scores = dict.fromkeys(name for run in runs for name in run.record.scores)

    def chart(title: str, kind: str, name: str) -> Chart:
        series = []
        for run in runs:
            points = run.over(run.record.training(name) if kind == "train" else run.record.curve(kind, name), over)
            points = smoothed(points, smoothing) if kind == "train" else points
            series.append(Series(run.name, points, dots=kind == "valid"))
        return Chart(title, series, linear=name in scores, over=OVER[over])

    return [
        chart("Training loss", "train", "loss"),
        chart("Validation loss", "valid", "loss"),
        *(chart(f"Validation {name}", "valid", name) for name in scores),
    ]


def _row(run: _Run) -> tuple[str, ...]:
    """What a table says of a run."""
    losses = [value for _, value in run.record.curve("valid", "loss")]
    lowest = figure(min(losses)) if losses else ""
    ended = "" if run.record.ending is None else run.record.ending
    return (run.name, f"{run.record.update:,}", f"{run.record.tokens:,}", duration(run.record.seconds), lowest, ended)


def _read(folder: Path) -> RunRecord:
    if not folder.is_dir():
        raise MissingInputError(f"there is no run folder {folder}")
    record = RunRecord.read(folder)
    if not record.events:
        raise MissingInputError(f"{folder} has no log.jsonl with events: it is no run folder, or nothing happened yet")
    return record
