"""Draw attention as maps, and as lines between two columns of words, as SVG or PNG."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmt.config.choices import WORD_START
from nmt.data.vocabulary import Floats
from nmt.errors import DataError
from nmt.pages.charts import render
from nmt.reporting.picture import Picture, width_of, wrapped

_MARGIN = 24  # pixels around a panel
_PAGE_WIDTH = 1100  # pixels; panels are placed in rows of at most this width

# Maps, in pixels.
_LINE = 18  # height of a line of letters
_MAP_LETTER = 7.3  # width of a letter: all have one width
_CELL = 16  # side of the square of a weight; a label just fits its row or column
_MAP_GAP = 8  # between a map and its labels
_SCALE = 80  # width of the scale of grays
_TITLE_LINES = 16  # longer titles end in an ellipsis
_SPACE = "\u2423"  # an open box makes a space visible in a label

# Lines between columns, in pixels.
_LETTER = 8.0  # about the width of a letter
_ROW = 22  # height of a word
_ACROSS = 190  # between the columns
_GAP = 6  # between a word and the lines
_TITLE = 24
_FAINTEST = 0.02  # weight of a line that is drawn
_SPREAD = 8.0  # over which the lines of all heads are spread


@dataclass(frozen=True)
class AttentionPanel:
    """The attention of one sentence: ``weights`` [target tokens, source tokens], each row sums to 1."""

    source: Sequence[str]
    target: Sequence[str]
    weights: npt.NDArray[np.floating]
    title: str = ""


@dataclass(frozen=True)
class LinesPanel:
    """The attention of some heads in one sentence pair: ``weights`` [heads, rows, columns]."""

    rows: Sequence[str]
    columns: Sequence[str]
    weights: Floats
    heads: Sequence[int]  # their numbers, from 1
    num_heads: int  # of the layer; the color of a head depends on it
    title: str = ""


def plot_attention(panels: Sequence[AttentionPanel], output: Path | str | None = None) -> Picture:
    """Draw attention maps: source tokens across, target tokens down, large weights bright. ``output``: a file of SVG or PNG.

    Every weight is a square of the same size, so that maps of several sentences can be compared.
    """
    maps = [_Map(panel) for panel in panels]
    width, height = _place_in_rows(maps)
    svg = render("attention.svg", maps=maps, width=width + _SCALE, height=height, CELL=_CELL, LINE=_LINE, GAP=_MAP_GAP)
    return Picture(svg).written(output)


def plot_attention_lines(panels: Sequence[LinesPanel], output: Path | str | None = None) -> Picture:
    """Draw queries on the left, keys on the right and a color for each head. ``output``: a file of SVG or PNG.

    The opacity of a line is its weight, as in figures 3 to 5 of Vaswani et al. 2017.
    """
    columns = [_Columns(panel) for panel in panels]
    width, height = _place_in_rows(columns, align_tops=True)
    svg = render("attention_lines.svg", panels=columns, width=width, height=height, ROW=_ROW, GAP=_GAP)
    return Picture(svg).written(output)


class _Placed:
    """A panel in pixels, from the upper left corner of the page."""

    left = top = width = height = 0.0


class _Map(_Placed):
    """An attention map with labels and title."""

    def __init__(self, panel: AttentionPanel) -> None:
        self.panel = panel
        source, target, weights = panel.source, panel.target, panel.weights
        assert weights.shape == (len(target), len(source)), f"weights {weights.shape}, {len(target)}, {len(source)}"
        # labels of target tokens are left of the map, those of source tokens above it
        self.label_width, self.label_height = (
            _MAP_LETTER * max(map(width_of, pieces), default=1) + _MAP_GAP for pieces in (target, source)
        )
        letters = int((self.label_width + _CELL * len(source)) / _MAP_LETTER)
        self.title = wrapped(panel.title, letters, _TITLE_LINES)
        self.width = self.label_width + _CELL * len(source) + _MARGIN
        self.height = self.label_height + _LINE * len(self.title) + _CELL * len(target) + _MARGIN
        self.sources = [_label(piece) for piece in source]
        grays = np.rint(255 * np.clip(weights, 0.0, 1.0)).astype(int).tolist()
        self.rows = [(_label(piece), row) for piece, row in zip(target, grays)]  # weights from 0 to 255


class _Columns(_Placed):
    """Two columns of words with lines, a legend and a title."""

    def __init__(self, panel: LinesPanel) -> None:
        self.panel = panel
        self.begin = _LETTER * max(map(width_of, panel.rows), default=1) + _GAP  # of the lines
        self.end = self.begin + _ACROSS
        right = _LETTER * max(map(width_of, panel.columns), default=1)
        legend = 22.0 * len(panel.heads) + 60
        self.width = max(self.end + right + _GAP, legend, _LETTER * width_of(panel.title)) + _MARGIN
        self.head_of_lines = _TITLE * (bool(panel.title) + 1)
        self.height = self.head_of_lines + _ROW * max(len(panel.rows), len(panel.columns)) + _MARGIN
        self.legend = [(head, color_of(head, panel.num_heads)) for head in panel.heads]

    @property
    def lines(self) -> list[tuple[str, list[tuple[float, float, float]]]]:
        """For each head, its color and its lines: height at the left, height at the right, weight."""
        spread = _SPREAD / (len(self.legend) - 1) if len(self.legend) > 1 else 0.0
        lines = []
        for order, ((_, color), weights) in enumerate(zip(self.legend, self.panel.weights)):
            middle = _ROW / 2 + spread * order - (_SPREAD / 2 if spread else 0.0)
            ends = [
                (_ROW * row + middle, _ROW * column + middle, min(float(weight), 1.0))
                for (row, column), weight in np.ndenumerate(weights)
                if weight >= _FAINTEST
            ]
            lines.append((color, ends))
        return lines


def _place_in_rows(panels: Sequence[_Placed], *, align_tops: bool = False) -> tuple[float, float]:
    """Place panels side by side while they fit the page, then in the next row. Return the width and height of all.

    The lower edges of a row agree, or the upper ones.
    """
    if not panels:
        raise DataError("no attention to draw: the list of panels is empty; give at least one panel")
    rows: list[list[_Placed]] = [[]]
    for panel in panels:
        if rows[-1] and sum(other.width for other in rows[-1]) + panel.width > _PAGE_WIDTH:
            rows.append([])
        rows[-1].append(panel)
    top = 0.5 * _MARGIN
    for row in rows:
        left, height = 0.5 * _MARGIN, max(panel.height for panel in row)
        for panel in row:
            panel.left, panel.top = left, top + (0 if align_tops else height - panel.height)
            left += panel.width
        top += height
    return max(panel.left + panel.width for panel in panels), max(panel.top + panel.height for panel in panels)


def _label(piece: str) -> str:
    return piece.replace(" ", _SPACE).replace(WORD_START, _SPACE) or _SPACE


def color_of(head: int, num_heads: int) -> str:
    """Return the color of a head, counted from 1."""
    red, green, blue = colorsys.hls_to_rgb((head - 1) / max(1, num_heads), 0.40, 0.70)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
