"""The templates of pages and pictures, with what they may call."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.reporting import charts, numbers

if TYPE_CHECKING:
    from jinja2 import Environment

_LONGEST_NAME = 40  # letters of a curve's name on a picture
_LIGHT = ("#2563b8", "#d1661c", "#2f8f57", "#8a4fc0", "#b3365b", "#7a6a12")  # of curves, on white
_DARK = ("#74a9ee", "#f0a066", "#74c797", "#c19bea", "#ec8aa6", "#d3c05a")


def render(template: str, **values: object) -> str:
    """A template of ``templates/`` as text; every value is escaped."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader  # here, since not every run has a page

    folder = Path(__file__).parent / "templates"
    environment = Environment(loader=FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "commas": "{:,}".format,
        "plain": "{:g}".format,
        "rounded": _rounded,
        "short": numbers.short,
        "shortened": _shortened,
        "shown": _shown,
        "thinned": charts.thinned,
    }
    sizes = {name: getattr(charts, name) for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM")}
    environment.globals |= {**sizes, "LIGHT": _LIGHT, "DARK": _DARK}
    return environment


def _shown(value: object) -> str:
    """An option as text."""
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rounded(value: object) -> str:
    """A figure that the log keeps as text, since it may be infinite."""
    try:
        return numbers.figure(float(str(value)))
    except ValueError:
        return _shown(value)


def _shortened(name: str) -> str:
    """Beginning and end, which tell runs apart."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-half + 1 :]}"
