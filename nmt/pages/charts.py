"""Charts of curves, and the templates that draw charts and write pages."""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.pages.numbers import short

if TYPE_CHECKING:
    from jinja2 import Environment

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 58, WIDTH - 14, 10, HEIGHT - 28  # edges of the plot
_MOST_POINTS = 500  # of a line; more would not be visible
_MOST_DOTS = 40
_MOST_POWERS = 6  # between the ticks of a logarithmic axis; a run that diverges reaches 1e300
_LOG_RATIO = 100  # beyond this between the largest and the smallest value, the scale is logarithmic
_LONGEST_TEXT = 400  # letters of an example
_LONGEST_NAME = 40  # letters of a curve's name on a picture
_LIGHT = ("#2563b8", "#d1661c", "#2f8f57", "#8a4fc0", "#b3365b", "#7a6a12", "#0a8f96", "#5b6470")  # of curves, on white
_DARK = ("#74a9ee", "#f0a066", "#74c797", "#c19bea", "#ec8aa6", "#d3c05a", "#5fced4", "#aab4c0")

# Characters that XML does not allow; no viewer opens a picture with them.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_RIGHT_TO_LEFT = "\u200f"  # an invisible letter

Point = tuple[float, float]  # update, value


@dataclass(frozen=True)
class Series:
    """One curve."""

    name: str
    points: Sequence[Point]
    dots: bool = False  # each point is marked and says its value when pointed at

    def dotted(self) -> list[Point]:
        """The points that are marked; a single one is always."""
        return thinned(self.points, _MOST_DOTS) if self.dots or len(self.points) == 1 else []


@dataclass(frozen=True)
class Axis:
    """The ticks of an axis, and the position of a value in pixels."""

    ticks: Sequence[float]
    place: Callable[[float], float]

    @classmethod
    def linear(cls, low: float, high: float, first: float, last: float) -> Axis:
        extent = (high - low) or 1.0
        return cls(nice_ticks(low, high), lambda value: first + (value - low) / extent * (last - first))

    @classmethod
    def logarithmic(cls, low: float, high: float, first: float, last: float) -> Axis:
        place = cls.linear(math.log10(low), math.log10(high), first, last).place
        lowest, highest = math.ceil(math.log10(low)), math.floor(math.log10(high))
        powers = range(lowest, highest + 1, max(1, math.ceil((highest - lowest) / _MOST_POWERS)))
        return cls([10.0**power for power in powers], lambda value: place(math.log10(value)))


@dataclass(frozen=True)
class Chart:
    """Curves over updates from 0 to ``last`` (None: the last point)."""

    title: str
    series: Sequence[Series]
    last: float | None = None
    from_zero: bool = False  # the scale of values begins at zero
    linear: bool = False  # the scale is never logarithmic; that of a diverging loss is
    over: str = "update"
    ends: bool = True  # the legend has the last value of each curve

    @property
    def drawn(self) -> list[Series]:
        """The curves that have points."""
        return [series for series in self.series if series.points]

    @property
    def across(self) -> Axis:
        last = max(update for series in self.drawn for update, _ in series.points) if self.last is None else self.last
        axis = Axis.linear(0, last, LEFT, RIGHT)
        return Axis([tick for tick in axis.ticks if tick == int(tick)], axis.place)

    @property
    def upwards(self) -> Axis:
        values = [value for series in self.drawn for _, value in series.points]
        low, high = min(values), max(values)
        if not self.linear and low > 0 and high / low > _LOG_RATIO:
            return Axis.logarithmic(low, high, BOTTOM, TOP)
        low = min(0.0, low) if self.from_zero else low
        room = 0.04 * ((high - low) or abs(high) or 1.0)
        return Axis.linear(low if self.from_zero else low - room, high + room, BOTTOM, TOP)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about ``count`` round numbers from ``low`` to ``high``."""
    if high <= low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def thinned(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """Return at most ``most`` points: the extremes of each interval, and both ends."""
    if len(points) <= most:
        return list(points)
    stretch = math.ceil(len(points) / (most // 2 - 1))
    kept = {0, len(points) - 1}
    for start in range(0, len(points), stretch):
        numbers = range(start, min(start + stretch, len(points)))
        kept |= {choose(numbers, key=lambda number: points[number][1]) for choose in (min, max)}
    return [points[number] for number in sorted(kept)]


def render(template: str, **values: object) -> str:
    """Render a template of ``templates/``; every value is escaped."""
    text = _environment().get_template(template).render(values)
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text) if template.endswith(".svg") else text


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader  # here, since not every run has a page

    folder = Path(__file__).parent / "templates"
    environment = Environment(loader=FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "commas": "{:,}".format,
        "cut": _cut,
        "directed": _directed,
        "plain": "{:g}".format,
        "short": short,
        "shortened": _shortened,
        "shown": _shown,
        "thinned": thinned,
    }
    edges = {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LEFT": LEFT, "RIGHT": RIGHT, "TOP": TOP, "BOTTOM": BOTTOM}
    environment.globals |= {**edges, "LIGHT": _LIGHT, "DARK": _DARK}
    return environment


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}\N{HORIZONTAL ELLIPSIS}"


def _directed(word: str) -> str:
    """Isolate a right-to-left word, so that its marks stay on the correct side. SVG has no element like HTML's <bdi>."""
    first = next((kind for kind in map(unicodedata.bidirectional, word) if kind in ("L", "R", "AL")), "L")
    return word if first == "L" else f"{_RIGHT_TO_LEFT}{word}{_RIGHT_TO_LEFT}"


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shortened(name: str) -> str:
    """Shorten a long name in the middle: names of runs differ at their ends."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-half + 1 :]}"
