"""Refusing values of options, and options that exclude each other."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from nmt.errors import UsageError, numbered

LARGEST_INTEGER = 2**63 - 1  # that fits into an element of an array

Choice = TypeVar("Choice", bound=Enum)

# Each a condition and what is said where it holds: (width % 2, f"model.width={width} is odd; use an even one").
Rules = Iterator[tuple[object, str]]


def refuse(*rules: tuple[object, str]) -> None:
    """Refuse options that cannot go together: all complaints in one message."""
    found = [complaint for broken, complaint in rules if broken]
    if found:
        raise UsageError(numbered(found))


def require_positive(section_name: str, **values: float | None) -> None:
    """Refuse zero, negative and non-finite values of options that count something."""
    given = {name: value for name, value in values.items() if value is not None}
    _require(lambda value: 0 < value < math.inf, "a finite number greater than zero", section_name, given)
    _require(_fits_an_integer, f"at most {LARGEST_INTEGER}", section_name, given)


def require_not_negative(section_name: str, **values: float) -> None:
    """Refuse negative and non-finite values of options that may be zero."""
    _require(lambda value: 0 <= value < math.inf, "a finite number that is not negative", section_name, values)
    _require(_fits_an_integer, f"at most {LARGEST_INTEGER}", section_name, values)


def require_share(section_name: str, **values: float) -> None:
    """Refuse what is not a share of a whole: at least 0 and less than 1."""
    _require(lambda value: 0.0 <= value < 1.0, "at least 0 and less than 1", section_name, values)


def _fits_an_integer(value: float) -> bool:
    return not isinstance(value, int) or value <= LARGEST_INTEGER


def _require(fits: Callable[[float], bool], what: str, section_name: str, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        if not fits(value):
            key = f"{section_name}.{name}" if section_name else name  # an option of no section has its own name
            raise UsageError(f"{key}={value} must be {what}")


def choice_named(kind: type[Choice], option: str, given: Choice | str) -> Choice:
    """One of several words, as Python code gives it."""
    if isinstance(given, kind):
        return given
    if given not in kind.__members__:
        raise UsageError(f"{option}={given!r} is none of {', '.join(kind.__members__)}")
    return kind[str(given)]


def require_device(name: str) -> None:
    """Refuse what names no device. Whether the device is there is for torch to say."""
    if re.fullmatch(r"auto|cpu|cuda(:(0|[1-9]\d*))?", name) is None:
        raise UsageError(f"device.name={name} is none of auto, cpu, cuda, cuda:N (--device)")
