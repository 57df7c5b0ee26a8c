"""Draw the training curves of one or several runs as SVG, PNG or HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nmt.errors import DataError, MissingInputError
from nmt.pages.charts import HEIGHT, WIDTH, Chart, Point, Series, render
from nmt.pages.names import short_names
from nmt.reporting.html_report import page_of_record
from nmt.reporting.picture import Picture, wrapped
from nmt.reporting.run_record import LOSSES, RunRecord, read_events
from nmt.reporting.runs_page import ListedRun, find_runs, page_data, runs_page
from nmt.storage.files import atomic_write

OVER = {"updates": "update", "tokens": "target token", "seconds": "second"}
_LINE = 18  # pixels, the height of a line of letters
_TITLE = 70  # letters of a line of the title


def plot_curves(paths: Sequence[Path], output: Path, over: str = "updates", smoothing: float = 0.0) -> None:
    """Losses and validation scores of runs and sweeps over "updates", "tokens" or "seconds", as SVG, PNG or HTML.

    ``smoothing``: the share of the running mean that each value of the training loss keeps, from 0 to below 1.
    """
    listed = find_runs(paths)
    runs = {run.name: _read(run) for run in listed}
    charts = [chart for chart in _charts(runs, over, smoothing) if chart.drawn]
    if not charts:
        raise MissingInputError(
            f"{', '.join(map(str, paths))}: the log has no losses yet, so there is no curve to draw"
        )
    if output.suffix != ".html":
        _drawn(charts, "").written(output)
        return
    title, logs = ", ".join(short_names(paths)), [record.events for record in runs.values()]
    single = len(runs) == 1 and not listed[0].job
    data = page_data(title, listed, logs, single=single, over=over, smoothing=smoothing)
    page = page_of_record(next(iter(runs.values())), data) if single else runs_page(data)
    with atomic_write(output) as file:
        file.write(page.encode("utf-8", "replace"))


def smoothed(points: Sequence[Point], share: float) -> list[Point]:
    """Return running means m_i = share m_(i-1) + (1 - share) x_i, divided by the sum of their weights (m_0 is 0)."""
    means, mean, weight = [], 0.0, 0.0
    for place, value in points:
        mean, weight = share * mean + (1 - share) * value, share * weight + (1 - share)
        means.append((place, mean / weight))
    return means


def _charts(runs: Mapping[str, RunRecord], over: str, smoothing: float) -> list[Chart]:
    """``runs``: by their names in the picture."""
    scores = dict.fromkeys(name for record in runs.values() for name in record.scores)

    def chart(title: str, kind: str, name: str) -> Chart:
        series = []
        for run, record in runs.items():
            points = record.training(name) if kind == "train" else record.curve(kind, name)
            points = _over(record, points, over)
            points = smoothed(points, smoothing) if kind == "train" else points
            series.append(Series(run, points, dots=kind == "valid"))
        return Chart(title, series, linear=name in scores, over=OVER[over])

    return [
        chart("Training loss", "train", "loss"),
        chart("Validation loss", "valid", "loss"),
        *(chart(f"Validation {name}", "valid", name) for name in scores),
    ]


def _over(record: RunRecord, points: Sequence[Point], over: str) -> list[Point]:
    """Convert points over updates to points over "updates", target "tokens" or "seconds" of training."""
    if over == "updates" or not points:
        return list(points)
    updates, readings, total = [0.0], [0.0], 0.0
    for event in sorted(record.of("train"), key=lambda event: int(event["update"])):
        value = float(event.get(over) or 0.0)
        total = total + value if over == "tokens" else max(total, value)
        updates.append(float(event["update"]))
        readings.append(total)
    places = np.interp([update for update, _ in points], updates, readings).tolist()
    return [(place, value) for place, (_, value) in zip(places, points)]


def _read(run: ListedRun) -> RunRecord:
    record = RunRecord.read(run.folder)
    if not record.events and not run.job:  # a job of a sweep may have failed before
        raise MissingInputError(
            f"{run.folder} has no log.jsonl with events: it is not a run folder, or training has not begun"
        )
    return record


def plot_learning_curve(log: Path | str, output: Path | str | None = None, title: str = "") -> Picture:
    """Draw losses over updates, and below them the validation metrics. ``output``: a file of SVG or PNG."""
    record = _of_log(Path(log))
    losses = [
        Series("training", record.curve("train", "loss")),
        Series("validation", record.curve("valid", "loss"), dots=True),
    ]
    scores = [Series(f"validation {name}", record.curve("valid", name), dots=True) for name in sorted(record.scores)]
    charts = [Chart("loss", losses, from_zero=True), Chart("score", scores, from_zero=True, linear=True)]
    if not charts[0].drawn:
        raise DataError(f"{log} has no training or validation events: there is no curve to draw")
    return _drawn([chart for chart in charts if chart.drawn], title).written(output)


def plot_comparison(
    logs: Mapping[str, Path], metric: str, output: Path | str | None = None, title: str = ""
) -> Picture:
    """Draw one validation metric of several runs over epochs. ``logs``: by name; ``output``: a file of SVG or PNG.

    The scale begins at zero, unless half of the picture would be empty.
    """
    series = []
    for name, log in logs.items():
        events = [event for event in _of_log(log).of("valid") if isinstance(event.get(metric), (int, float))]
        if not events:
            raise DataError(f"{log} has no validation event with '{metric}': train with --valid-metrics {metric}")
        by_epoch = {event["epoch"]: float(event[metric]) for event in events}
        series.append(Series(name, sorted(by_epoch.items()), dots=True))
    values = [value for curve in series for _, value in curve.points]
    from_zero = min(values) < max(values) / 2
    chart = Chart(f"validation {metric}", series, from_zero=from_zero, linear=metric not in LOSSES, over="epoch")
    return _drawn([chart], title).written(output)


def _of_log(log: Path) -> RunRecord:
    if not log.exists():
        raise MissingInputError(f"there is no training log {log}")
    return RunRecord(log.parent, tuple(read_events(log)), {})


def _drawn(charts: Sequence[Chart], title: str) -> Picture:
    """Draw charts below each other, each with a legend above it."""
    lines = wrapped(title, _TITLE)
    tops = [_LINE * (len(lines) + 1)]
    for chart in charts:
        tops.append(tops[-1] + HEIGHT + _LINE * (len(chart.drawn) + 2))
    return Picture(render("picture.svg", charts=list(zip(charts, tops)), title=lines, width=WIDTH, height=tops[-1]))
