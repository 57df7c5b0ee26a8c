"""Bar charts with several series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.pages.charts import BOTTOM, LEFT, RIGHT, TOP, Axis

_BETWEEN = 0.3  # of the width of a group: space between groups of bars
_ABOVE = 1.05  # the scale ends above the highest bar


@dataclass(frozen=True)
class Bar:
    """A rectangle in pixels."""

    left: float
    top: float
    width: float
    height: float
    value: float
    label: str  # of its group


@dataclass(frozen=True)
class Bars:
    """A group of bars for each label, with one bar for each series. The scale begins at zero."""

    title: str
    labels: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]  # names, and values by label; None: there is no bar

    @property
    def upwards(self) -> Axis:
        values = [value for _, several in self.series for value in several if value is not None]
        return Axis.linear(0.0, _ABOVE * max([0.0, *values]) or 1.0, BOTTOM, TOP)

    @property
    def group_width(self) -> float:
        return (RIGHT - LEFT) / max(1, len(self.labels))

    def middles(self) -> list[tuple[float, str]]:
        return [(LEFT + self.group_width * (place + 0.5), label) for place, label in enumerate(self.labels)]

    def bars(self, number: int) -> list[Bar]:
        """Return the bars of a series. Values below zero are drawn as zero."""
        width = self.group_width * (1 - _BETWEEN) / len(self.series)
        aside, place = width * (number - len(self.series) / 2), self.upwards.place
        return [
            Bar(middle + aside, place(max(value, 0.0)), width, BOTTOM - place(max(value, 0.0)), value, label)
            for (middle, label), value in zip(self.middles(), self.series[number][1])
            if value is not None
        ]
