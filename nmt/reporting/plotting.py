"""Pictures of a run: its learning curve as SVG, and what its decoder attended to as PNG.

Only attention maps need matplotlib. It is used without pyplot: no global figures, no back-end to choose, safe inside any
program.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.errors import DataError, MissingInputError, UsageError
from nmt.reporting.charts import HEIGHT, WIDTH, Chart, Series
from nmt.reporting.rendering import render
from nmt.reporting.run_record import RunRecord
from nmt.storage.files import atomic_write

_DPI = 150
_CELL = 0.2  # inches of one attention weight; with _LABEL_SIZE points a label just fits its row or column
_LABEL_SIZE = 9
_LETTER = 0.09  # inches, the width of a letter at _LABEL_SIZE points
_TITLE_LINES = 3  # of a panel's title at _LABEL_SIZE points; what is longer is set smaller
_SMALL_TITLE_SIZE, _SMALL_TITLE_LINES = 7, 16  # points, and lines; what is longer still ends in an ellipsis
_LINE = 1.28 / 72  # inches, the height of a line of letters of one point
_CURVE_TITLE = 70  # letters of a line above curves
_CURVE_LINE = 18  # pixels, the height of a line of letters
_MARGIN = 0.3  # inches around a panel
_PAGE_WIDTH = 11.0  # inches; panels are set in lines of at most this width, like words
_SPACE = "\u2423"  # an open box, so that a space is visible as a label
_WORD_BOUNDARY = "\u2581"  # sentencepiece's mark


@dataclass(frozen=True)
class AttentionPanel:
    """The attention of one sentence: ``weights`` [target pieces, source pieces], each row sums to 1."""

    source: Sequence[str]
    target: Sequence[str]
    weights: npt.NDArray[np.floating]
    title: str = ""


def plot_learning_curve(log: Path | str, output: Path | str, title: str = "") -> None:
    """Losses against updates, and below them the validation metrics, as SVG."""
    record = _record(Path(log))
    losses = [
        Series("training", record.curve("train", "loss")),
        Series("validation", record.curve("valid", "loss"), dots=True),
    ]
    scores = [Series(f"validation {name}", record.curve("valid", name), dots=True) for name in sorted(record.scores)]
    charts = [Chart("loss", losses, from_zero=True), Chart("score", scores, from_zero=True)]
    if not charts[0].drawn:
        raise DataError(f"{log} has no training or validation events: there is no curve to draw")
    _draw([chart for chart in charts if chart.drawn], Path(output), title)


def plot_comparison(logs: Mapping[str, Path], metric: str, output: Path, title: str = "") -> None:
    """One validation metric of several runs, by name, against epochs, as SVG."""
    series = []
    for name, log in logs.items():
        events = [event for event in _record(log).of("valid") if isinstance(event.get(metric), (int, float))]
        if not events:
            raise DataError(f"{log} has no validation event with '{metric}': train with --valid-metrics {metric}")
        by_epoch = {event["epoch"]: float(event[metric]) for event in events}
        series.append(Series(name, sorted(by_epoch.items()), dots=True))
    _draw([Chart(f"validation {metric}", series, from_zero=True, over="epoch")], output, title)


def _record(log: Path) -> RunRecord:
    if not log.exists():
        raise MissingInputError(f"there is no training log {log}")
    return RunRecord.of_log(log)


def _draw(charts: Sequence[Chart], output: Path, title: str) -> None:
    """Charts one below the other, each under the names of its curves."""
    if output.suffix != ".svg":
        raise UsageError(f"curves are drawn as SVG: name the file {output.with_suffix('.svg')} instead of {output}")
    lines = _wrapped(title, _CURVE_TITLE).splitlines()
    tops = [_CURVE_LINE * (len(lines) + 1)]
    for chart in charts:
        tops.append(tops[-1] + HEIGHT + _CURVE_LINE * (len(chart.drawn) + 2))
    picture = render("picture.svg", charts=list(zip(charts, tops)), title=lines, width=WIDTH, height=tops[-1])
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as file:
        file.write(picture.encode("utf-8", "replace"))


def plot_attention(panels: Sequence[AttentionPanel], output: Path) -> None:
    """Attention maps as a PNG: the source across, the output down, bright where the decoder looked.

    Every weight is a square of the same size, so that panels of several sentences can be compared.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("attention maps need matplotlib: pip install 'nmt-toolkit[plots]'") from None
    if not panels:
        raise DataError("there is no sentence whose attention could be drawn")
    boxes = _set_in_lines([_PanelBox.around(panel) for panel in panels])
    width = max(box.left + box.width for box in boxes) + 0.9  # room for the scale of colours
    height = max(box.top + box.height for box in boxes)
    figure = Figure(figsize=(width, height), dpi=_DPI)
    image: Any = None
    for panel, box in zip(panels, boxes):
        image = _draw_attention(figure.add_axes(box.map_area(width, height)), panel, box)
    scale_height = min(2.0, 0.6 * height)
    scale = figure.add_axes(
        ((width - 0.8) / width, 0.5 - scale_height / height / 2, 0.12 / width, scale_height / height)
    )
    figure.colorbar(image, cax=scale).set_label("attention weight", fontsize=_LABEL_SIZE)
    scale.tick_params(labelsize=_LABEL_SIZE - 1)
    _save(figure, output)


@dataclass(frozen=True)
class _PanelBox:
    """Where one attention map stands, in inches from the upper left corner of the page."""

    map_width: float
    map_height: float
    label_width: float  # of the output's pieces, left of the map
    label_height: float  # of the source's pieces, above the map
    title: str = ""  # in lines, above all of this and no wider
    title_size: int = _LABEL_SIZE  # points
    left: float = 0.0
    top: float = 0.0

    @classmethod
    def around(cls, panel: AttentionPanel) -> _PanelBox:
        longest_source = max((len(piece) for piece in panel.source), default=1)
        longest_target = max((len(piece) for piece in panel.target), default=1)
        map_width = _CELL * len(panel.source)
        label_width = _LETTER * longest_target + 0.1
        title, title_size = _fitted(panel.title, label_width + map_width)
        return cls(
            map_width=map_width,
            map_height=_CELL * len(panel.target),
            label_width=label_width,
            label_height=_LETTER * longest_source + 0.15,
            title=title,
            title_size=title_size,
        )

    @property
    def width(self) -> float:
        return self.label_width + self.map_width + _MARGIN

    @property
    def height(self) -> float:
        lines = len(self.title.splitlines())
        title_height = 0.09 + _LINE * self.title_size * lines if lines else 0.0
        return self.label_height + title_height + self.map_height + _MARGIN

    def map_area(self, page_width: float, page_height: float) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of the map as shares of the page, as matplotlib wants them."""
        left = self.left + self.label_width + 0.5 * _MARGIN
        bottom = page_height - self.top - self.height + 0.5 * _MARGIN
        return left / page_width, bottom / page_height, self.map_width / page_width, self.map_height / page_height


def _set_in_lines(boxes: Sequence[_PanelBox]) -> list[_PanelBox]:
    """The boxes side by side while they fit the page, then on the next line; lower edges of a line agree."""
    lines: list[list[_PanelBox]] = [[]]
    for box in boxes:
        if lines[-1] and sum(other.width for other in lines[-1]) + box.width > _PAGE_WIDTH:
            lines.append([])
        lines[-1].append(box)
    placed, top = [], 0.0
    for line in lines:
        left, line_height = 0.0, max(box.height for box in line)
        for box in line:
            placed.append(replace(box, left=left, top=top + line_height - box.height))
            left += box.width
        top += line_height
    return placed


def _draw_attention(axes: Any, panel: AttentionPanel, box: _PanelBox) -> Any:
    expected = (len(panel.target), len(panel.source))
    assert panel.weights.shape == expected, f"attention {panel.weights.shape}, pieces {expected}"
    image = axes.imshow(panel.weights, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="equal")
    axes.set_xticks(range(len(panel.source)))
    axes.set_yticks(range(len(panel.target)))
    # parse_math: a "$" in the text is a dollar sign, not a formula
    rotation = 90 if any(len(piece) > 1 for piece in panel.source) else 0
    axes.set_xticklabels([_label(p) for p in panel.source], rotation=rotation, fontsize=_LABEL_SIZE, parse_math=False)
    axes.set_yticklabels([_label(p) for p in panel.target], fontsize=_LABEL_SIZE, parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    if box.title:
        left = -box.label_width / box.map_width  # where the labels begin, as a share of the map
        axes.set_title(box.title, fontsize=box.title_size, loc="left", x=left, parse_math=False)
    return image


def _label(piece: str) -> str:
    return piece.replace(" ", _SPACE).replace(_WORD_BOUNDARY, _SPACE) or _SPACE


def _wrapped(title: str, letters: int, max_lines: int = _TITLE_LINES) -> str:
    return "\n".join(textwrap.wrap(title, letters, max_lines=max_lines, placeholder=" \N{HORIZONTAL ELLIPSIS}"))


def _fitted(title: str, width: float) -> tuple[str, int]:
    """A title in lines of at most so many inches, and the size of its letters: small only where it needs many lines."""
    lines = _within(title, width, _LABEL_SIZE, _TITLE_LINES)
    if "".join(lines.split()) == "".join(title.split()):
        return lines, _LABEL_SIZE
    return _within(title, width, _SMALL_TITLE_SIZE, _SMALL_TITLE_LINES), _SMALL_TITLE_SIZE


def _within(title: str, width: float, size: int, max_lines: int) -> str:
    """Wrapped to as many letters a line as have room: letters differ in width."""
    most = max(1, int(width / (0.25 * size / 72)))  # hardly a letter is narrower than a quarter of its size
    candidates = (_wrapped(title, letters, max_lines) for letters in range(most, 0, -1))
    return next(
        (lines for lines in candidates if all(_inches(line, size) <= width for line in lines.splitlines())),
        _wrapped(title, 1, max_lines),
    )


def _inches(text: str, size: int) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font lacks: drawing them says it once more
        return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size), False)[0]) / 72


def _save(figure: Any, output: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as file:
        FigureCanvasAgg(figure).print_figure(file, format="png")
