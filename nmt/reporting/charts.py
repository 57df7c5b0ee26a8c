"""Curves as inline SVG: no library, no file, colours from the page's style sheet, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 10, 28  # margins of the plot
_MOST_POINTS = 500  # of a line; more are not to be seen
_MOST_POWERS = 6  # between the ticks of a logarithmic axis
_MOST_DOTS = 40
_LOG_RATIO = 100  # beyond this between the largest and the smallest value, the scale is logarithmic

Point = tuple[float, float]  # update, value


@dataclass(frozen=True)
class Series:
    """One curve."""

    name: str
    points: Sequence[Point]
    dots: bool = False  # each point is marked and says its value when pointed at


@dataclass(frozen=True)
class Chart:
    """Curves over updates from 0 to ``last`` (None: as far as they go) on one scale; ``from_zero``: it begins at zero."""

    title: str
    series: Sequence[Series]
    last: float | None = None
    from_zero: bool = False
    marks: Sequence[tuple[float, str]] = ()  # updates where something happened, and what

    def html(self) -> str:
        """A figure; empty if there is nothing to draw."""
        drawn = [series for series in self.series if series.points]
        if not drawn:
            return ""
        legend = "".join(
            f'<span><i class="k{number}"></i>{escape(series.name)} <b>{short(series.points[-1][1])}</b></span>'
            for number, series in enumerate(drawn)
        )
        return (
            f"<figure><figcaption>{escape(self.title)}</figcaption>"
            f'<div class="legend">{legend}</div>{self._svg(drawn)}</figure>'
        )

    def _svg(self, drawn: Sequence[Series]) -> str:
        updates = [update for series in drawn for update, _ in series.points]
        values = [value for series in drawn for _, value in series.points]
        horizontal = _Axis.linear(0, max(updates) if self.last is None else self.last, _LEFT, WIDTH - _RIGHT)
        vertical = _value_axis(min(values), max(values), self.from_zero)
        parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">']
        for tick in vertical.ticks:
            y = vertical.place(tick)
            parts.append(f'<path class="rule" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
        for tick in horizontal.ticks:
            x = horizontal.place(tick)
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{short(tick)}</text>')
        for update, what in self.marks:
            x = horizontal.place(update)
            title = f"<title>{escape(what)}</title>"
            parts.append(f'<path class="mark" d="M{x:.1f} {_TOP}V{HEIGHT - _BOTTOM}">{title}</path>')
        for number, series in enumerate(drawn):
            parts.append(_curve(series, number, horizontal, vertical))
        return "".join([*parts, "</svg>"])


def short(value: float) -> str:
    """A number in few letters: 0.00071, 3.14, 1,500, 45k, 2.1M."""
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        for limit, letter in ((1e12, ""), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= limit:
                return f"{value:.3g}" if not letter else f"{value / limit:.3g}{letter}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def nice_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """About ``wanted`` round numbers from ``low`` to ``high``."""
    if high <= low:
        return [low]
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def thinned(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """At most ``most`` points with the same highs and lows: the extremes of each stretch, and both ends."""
    if len(points) <= most:
        return list(points)
    stretch = math.ceil(len(points) / (most // 2 - 1))
    kept = {0, len(points) - 1}
    for start in range(0, len(points), stretch):
        numbers = range(start, min(start + stretch, len(points)))
        kept.add(min(numbers, key=lambda number: points[number][1]))
        kept.add(max(numbers, key=lambda number: points[number][1]))
    return [points[number] for number in sorted(kept)]


@dataclass(frozen=True)
class _Axis:
    """Where a value stands on the page."""

    ticks: Sequence[float]
    place: Callable[[float], float]

    @classmethod
    def linear(cls, low: float, high: float, first: float, last: float) -> _Axis:
        extent = (high - low) or 1.0
        return cls(nice_ticks(low, high), lambda value: first + (value - low) / extent * (last - first))


def _value_axis(low: float, high: float, from_zero: bool) -> _Axis:
    bottom, top = HEIGHT - _BOTTOM, _TOP
    if low > 0 and high / low > _LOG_RATIO:
        inner = _Axis.linear(math.log10(low), math.log10(high), bottom, top)
        first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
        powers = range(
            first, last + 1, max(1, math.ceil((last - first) / _MOST_POWERS))
        )  # 1e300 in a run that diverges
        return _Axis([10.0**power for power in powers], lambda value: inner.place(math.log10(value)))
    if from_zero:
        low = min(0.0, low)
    room = 0.04 * ((high - low) or abs(high) or 1.0)
    return _Axis.linear(low if from_zero else low - room, high + room, bottom, top)


def _curve(series: Series, number: int, horizontal: _Axis, vertical: _Axis) -> str:
    points = [(horizontal.place(update), vertical.place(value)) for update, value in thinned(series.points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    line = f'<polyline class="line k{number}" points="{path}"/>'
    if not (series.dots or len(points) == 1):
        return line
    dots = [
        f'<circle class="dot k{number}" cx="{horizontal.place(update):.1f}" cy="{vertical.place(value):.1f}" r="3">'
        f"<title>{escape(series.name)} {short(value)} at update {update:,.0f}</title></circle>"
        for update, value in thinned(series.points, _MOST_DOTS)
    ]
    return line + "".join(dots)
