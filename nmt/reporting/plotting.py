"""Pictures of a run as SVG or PNG: its learning curve, and what its decoder attended to."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nmt.errors import DataError, MissingInputError
from nmt.pages.charts import HEIGHT, WIDTH, Chart, Series, render
from nmt.reporting.fonts import width_of
from nmt.reporting.picture import Picture
from nmt.reporting.run_record import LOSSES, RunRecord, read_events

_LINE = 18  # pixels, the height of a line of letters
_CURVE_TITLE = 70  # letters of a line above curves
_LETTER = 7.3  # pixels, the width of a letter of maps: they have one width
_CELL = 16  # pixels of one attention weight; a label just fits its row or column
_GAP = 8  # pixels between a map and its labels
_MARGIN = 24  # pixels around a map with its labels
_MAP_TITLE_LINES = 16  # what is longer ends in an ellipsis
_PAGE_WIDTH = 1100  # pixels; maps are set in lines of at most this width, like words
_SCALE = 80  # pixels, the room for the scale of greys
_SPACE = "\u2423"  # an open box, so that a space is visible as a label
_WORD_BOUNDARY = "\u2581"  # sentencepiece's mark


@dataclass(frozen=True)
class AttentionPanel:
    """The attention of one sentence: ``weights`` [target pieces, source pieces], each row sums to 1."""

    source: Sequence[str]
    target: Sequence[str]
    weights: npt.NDArray[np.floating]
    title: str = ""


def plot_learning_curve(log: Path | str, output: Path | str | None = None, title: str = "") -> Picture:
    """Losses against updates, and below them the validation metrics; ``output``: a file of SVG or PNG."""
    record = _record(Path(log))
    losses = [
        Series("training", record.curve("train", "loss")),
        Series("validation", record.curve("valid", "loss"), dots=True),
    ]
    scores = [Series(f"validation {name}", record.curve("valid", name), dots=True) for name in sorted(record.scores)]
    charts = [Chart("loss", losses, from_zero=True), Chart("score", scores, from_zero=True, linear=True)]
    if not charts[0].drawn:
        raise DataError(f"{log} has no training or validation events: there is no curve to draw")
    return drawn_charts([chart for chart in charts if chart.drawn], title).written(output)


def plot_comparison(
    logs: Mapping[str, Path], metric: str, output: Path | str | None = None, title: str = ""
) -> Picture:
    """One validation metric of several runs, by name, against epochs; ``output``: a file of SVG or PNG.

    The scale begins at zero unless half of the picture would be empty then.
    """
    series = []
    for name, log in logs.items():
        events = [event for event in _record(log).of("valid") if isinstance(event.get(metric), (int, float))]
        if not events:
            raise DataError(f"{log} has no validation event with '{metric}': train with --valid-metrics {metric}")
        by_epoch = {event["epoch"]: float(event[metric]) for event in events}
        series.append(Series(name, sorted(by_epoch.items()), dots=True))
    values = [value for one in series for _, value in one.points]
    from_zero = min(values) < max(values) / 2
    chart = Chart(f"validation {metric}", series, from_zero=from_zero, linear=metric not in LOSSES, over="epoch")
    return drawn_charts([chart], title).written(output)


def _record(log: Path) -> RunRecord:
    if not log.exists():
        raise MissingInputError(f"there is no training log {log}")
    return RunRecord(log.parent, tuple(read_events(log)), {})


def drawn_charts(charts: Sequence[Chart], title: str) -> Picture:
    """Charts one below the other, each under the names of its curves."""
    lines = _wrapped(title, _CURVE_TITLE)
    tops = [_LINE * (len(lines) + 1)]
    for chart in charts:
        tops.append(tops[-1] + HEIGHT + _LINE * (len(chart.drawn) + 2))
    return Picture(render("picture.svg", charts=list(zip(charts, tops)), title=lines, width=WIDTH, height=tops[-1]))


def plot_attention(panels: Sequence[AttentionPanel], output: Path | str | None = None) -> Picture:
    """Attention maps: the source across, the output down, bright where the decoder looked. Every weight is a square of the
    same size, so that maps of several sentences can be compared. ``output``: a file of SVG or PNG."""
    if not panels:
        raise DataError("there is no sentence whose attention could be drawn")
    maps = [_Map(panel) for panel in panels]
    set_in_lines(maps)
    width = max(map.left + map.width for map in maps) + _SCALE
    height = max(map.top + map.height for map in maps)
    drawn = render("attention.svg", maps=maps, width=width, height=height, CELL=_CELL, LINE=_LINE, GAP=_GAP)
    return Picture(drawn).written(output)


@dataclass
class _Map:
    """An attention map with labels and title, in pixels from the upper left corner of the page."""

    panel: AttentionPanel
    left: float = 0.0
    top: float = 0.0

    def __post_init__(self) -> None:
        source, target = self.panel.source, self.panel.target
        weights, shape = self.panel.weights, (len(target), len(source))
        assert weights.shape == shape, f"attention {weights.shape}, pieces {shape}"
        # of the output's pieces, left of the map, and of the source's, above it
        self.label_width, self.label_height = (
            _LETTER * max(map(width_of, pieces), default=1) + _GAP for pieces in (target, source)
        )
        letters = int((self.label_width + _CELL * len(source)) / _LETTER)
        self.title = _wrapped(self.panel.title, letters, _MAP_TITLE_LINES)
        self.width = self.label_width + _CELL * len(source) + _MARGIN
        self.height = self.label_height + _LINE * len(self.title) + _CELL * len(target) + _MARGIN
        self.sources = [_label(piece) for piece in source]
        greys = np.rint(255 * np.clip(weights, 0.0, 1.0)).astype(int).tolist()
        self.rows = [(_label(piece), row) for piece, row in zip(target, greys)]  # weights from 0 to 255


class Placed(Protocol):
    """A part of a picture, in pixels."""

    left: float
    top: float
    width: float
    height: float


def set_in_lines(maps: Sequence[Placed]) -> None:
    """Place maps side by side while they fit the page, then on the next line; lower edges of a line agree."""
    lines: list[list[Placed]] = [[]]
    for map in maps:
        if lines[-1] and sum(other.width for other in lines[-1]) + map.width > _PAGE_WIDTH:
            lines.append([])
        lines[-1].append(map)
    top = 0.5 * _MARGIN
    for line in lines:
        left, height = 0.5 * _MARGIN, max(map.height for map in line)
        for map in line:
            map.left, map.top = left, top + height - map.height
            left += map.width
        top += height


def _label(piece: str) -> str:
    return piece.replace(" ", _SPACE).replace(_WORD_BOUNDARY, _SPACE) or _SPACE


def _wrapped(title: str, letters: int, max_lines: int = 3) -> list[str]:
    return textwrap.wrap(title, letters, max_lines=max_lines, placeholder=" \N{HORIZONTAL ELLIPSIS}")
