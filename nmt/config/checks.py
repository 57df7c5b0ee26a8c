"""Refusing values of options, and options that exclude each other."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from importlib import metadata
from typing import TypeVar

from nmt.errors import UsageError, numbered

LARGEST_INTEGER = 2**63 - 1  # that fits into an element of an array
MOST_THREADS = 4096  # more than any machine has cores

Choice = TypeVar("Choice", bound=Enum)

# Pairs of a condition and the complaint if it holds: (width % 2, f"model.width={width} is odd; use an even one").
Refusals = Iterator[tuple[object, str]]


def refuse(*refusals: tuple[object, str]) -> None:
    """Refuse options whose conditions hold, with all complaints in one message."""
    complaints = [complaint for applies, complaint in refusals if applies]
    if complaints:
        raise UsageError(numbered(complaints))


def require_positive(section_name: str, **values: float | None) -> None:
    """Refuse zero, negative and non-finite values of options that count something; None is allowed."""
    _require(lambda value: 0 < value < math.inf, "a finite number greater than zero", section_name, values)
    _require(_fits_an_integer, f"at most {LARGEST_INTEGER}", section_name, values)


def require_not_negative(section_name: str, **values: float | None) -> None:
    """Refuse negative and non-finite values of options that may be zero; None is allowed."""
    _require(lambda value: 0 <= value < math.inf, "a finite number that is not negative", section_name, values)
    _require(_fits_an_integer, f"at most {LARGEST_INTEGER}", section_name, values)


def require_threads(section_name: str, threads: int | None) -> None:
    """Refuse a number of threads below 1 or above ``MOST_THREADS``."""
    require_positive(section_name, threads=threads)
    if threads is not None and threads > MOST_THREADS:
        key = _key(section_name, "threads")
        raise UsageError(f"{key}={threads} is more than {MOST_THREADS}; omit it for one per core (--threads)")


def require_at_most(section_name: str, limit: float, **values: float | None) -> None:
    """Refuse values of options above a limit; None is allowed."""
    _require(lambda value: value <= limit, f"at most {limit}", section_name, values)


def require_share(section_name: str, **values: float | None) -> None:
    """Refuse values below 0, and from 1 on; None is allowed."""
    for name, value in values.items():
        if value is not None:
            require_fraction(section_name, name, value, include_zero=True, include_one=False)


def require_fraction(
    section_name: str, name: str, value: float, *, include_zero: bool, include_one: bool, flag: str = ""
) -> None:
    """Refuse a value that does not lie between 0 and 1.

    ``include_zero``, ``include_one``: whether 0 and 1 are allowed; ``flag``: the command line's, for the message.
    """
    if 0.0 < value < 1.0 or (include_zero and value == 0.0) or (include_one and value == 1.0):
        return
    bounds = f"{'at least' if include_zero else 'above'} 0 and {'at most' if include_one else 'less than'} 1"
    raise UsageError(f"{_key(section_name, name)}={value} must be {bounds}{f' ({flag})' if flag else ''}")


def _fits_an_integer(value: float) -> bool:
    return not isinstance(value, int) or value <= LARGEST_INTEGER


def _require(fits: Callable[[float], bool], what: str, section_name: str, values: Mapping[str, float | None]) -> None:
    for name, value in values.items():
        if value is not None and not fits(value):
            raise UsageError(f"{_key(section_name, name)}={value} must be {what}")


def _key(section_name: str, name: str) -> str:
    """Return the key of an option; without a section it has no prefix."""
    return f"{section_name}.{name}" if section_name else name


def choice_named(kind: type[Choice], option: str, choice: Choice | str) -> Choice:
    """Convert the name of an enum's member, as Python code may give it."""
    if isinstance(choice, kind):
        return choice
    if choice not in kind.__members__:
        raise UsageError(f"{option}={choice!r} must be one of {', '.join(kind.__members__)}")
    return kind[str(choice)]


def require_device(name: str) -> None:
    """Refuse a malformed device name, or an unknown kind. torch checks whether the device exists."""
    named = re.fullmatch(r"auto|cpu|mps|(?P<kind>[a-z][a-z0-9_]*)(:(0|[1-9]\d*))?", name)
    if named is None or (named["kind"] not in (None, "cuda", "xpu") and named["kind"] != _plugged_in()):
        raise UsageError(f"device.name={name} must be one of auto, cpu, cuda, cuda:N, mps, xpu, xpu:N (--device)")


def _plugged_in() -> str | None:
    """Return the kind of device of a plug-in of torch. torch is imported only if there may be one."""
    if "torch" not in sys.modules and not metadata.entry_points(group="torch.backends"):
        return None
    import torch

    name: str = torch._C._get_privateuse1_backend_name()
    return None if name == "privateuseone" else name
