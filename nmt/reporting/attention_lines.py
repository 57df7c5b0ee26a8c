"""Attention as two columns of words, and lines between them as strong as the weights: the way of Vaswani et al. 2017,
figures 3 to 5."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.data.vocabulary import Floats
from nmt.errors import DataError
from nmt.pages.charts import render
from nmt.reporting.fonts import width_of
from nmt.reporting.picture import Picture
from nmt.reporting.plotting import set_in_lines

_LETTER = 8.0  # pixels, about the width of a letter
_ROW = 22  # pixels, the height of a word
_ACROSS = 190  # pixels that lines cross
_GAP = 6  # pixels between a word and the lines
_MARGIN = 24
_TITLE = 24
_LEAST = 0.02  # fainter lines are not to be seen
_ASIDE = 8.0  # pixels that the lines of all heads spread over


@dataclass(frozen=True)
class LinesPanel:
    """The attention of some heads in one sentence pair: ``weights`` [heads, rows, columns]."""

    rows: Sequence[str]
    columns: Sequence[str]
    weights: Floats
    heads: Sequence[int]  # their numbers, from 1
    num_heads: int  # of the layer: a head has one colour, whichever others are drawn
    title: str = ""


def plot_attention_lines(panels: Sequence[LinesPanel], output: Path | str | None = None) -> Picture:
    """On the left the words that look, on the right those that are looked at, a colour for each head.
    ``output``: a file of SVG or PNG."""
    if not panels:
        raise DataError("there is no sentence whose attention could be drawn")
    drawn = [_Drawn(panel) for panel in panels]
    set_in_lines(drawn)
    for bottom in {one.top + one.height for one in drawn}:  # upper edges agree: sentences begin side by side
        beside = [one for one in drawn if one.top + one.height == bottom]
        top = min(one.top for one in beside)
        for one in beside:
            one.top = top
    width, height = max(one.left + one.width for one in drawn), max(one.top + one.height for one in drawn)
    picture = render("attention_lines.svg", panels=drawn, width=width, height=height, ROW=_ROW, GAP=_GAP)
    return Picture(picture).written(output)


class _Drawn:
    """A panel in pixels."""

    def __init__(self, panel: LinesPanel) -> None:
        self.panel = panel
        self.left, self.top = 0.0, 0.0
        self.begin = _LETTER * max(map(width_of, panel.rows), default=1) + _GAP  # of the lines
        self.end = self.begin + _ACROSS
        right = _LETTER * max(map(width_of, panel.columns), default=1)
        legend = 22.0 * len(panel.heads) + 60
        self.width: float = max(self.end + right + _GAP, legend, _LETTER * width_of(panel.title)) + _MARGIN
        self.head_of_lines = _TITLE * (bool(panel.title) + 1)
        self.height: float = self.head_of_lines + _ROW * max(len(panel.rows), len(panel.columns)) + _MARGIN
        self.legend = [(head, colour(head, panel.num_heads)) for head in panel.heads]

    @property
    def lines(self) -> list[tuple[str, list[tuple[float, float, float]]]]:
        """Of each head its colour, and the lines: where they begin, where they end, how strong they are."""
        spread = _ASIDE / (len(self.legend) - 1) if len(self.legend) > 1 else 0.0
        found = []
        for order, ((_, ink), weights) in enumerate(zip(self.legend, self.panel.weights.tolist())):
            aside = spread * order - (_ASIDE / 2 if spread else 0.0)
            found.append(
                (
                    ink,
                    [
                        (_ROW * (row + 0.5) + aside, _ROW * (column + 0.5) + aside, min(weight, 1.0))
                        for row, of_row in enumerate(weights)
                        for column, weight in enumerate(of_row)
                        if weight >= _LEAST
                    ],
                )
            )
        return found


def colour(head: int, num_heads: int) -> str:
    """One of as many hues as there are heads; ``head`` counts from 1."""
    red, green, blue = colorsys.hls_to_rgb((head - 1) / max(1, num_heads), 0.40, 0.70)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
