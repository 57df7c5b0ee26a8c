"""Assignments ``key=value``: read from text by Hydra's override parser, or made from values of Python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.errors import UsageError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

SEARCH_PATH = "hydra.searchpath"  # further folders of presets
MOST_VALUES = 10_000  # of a sweep: a range may have any number


@dataclass(frozen=True)
class Assignment:
    """The value of an option, or the choice of a group."""

    key: str
    value: Any
    text: str | None = None  # as a user typed it; None: a value of Python
    # Of a sweep: one value for each job, the first of which is ``value``; empty: the sweeper finds them.
    sweep: Sequence[Any] | None = None

    @property
    def is_sweep(self) -> bool:
        return self.sweep is not None

    @property
    def of_hydra(self) -> bool:
        return self.key.startswith(("hydra.", "hydra/"))


def read(overrides: Sequence[str]) -> list[Assignment]:
    """Parse ``key=value``, with lists, mappings, quotes, functions and sweeps. A plus sign before a key has no effect."""
    if not overrides:
        return []  # without the import of Hydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import OverrideParseException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as error:
        advice = "put quotes around special characters: \"key='a, b'\""
        raise UsageError(f"cannot read {error.override} ({advice})") from None
    return [_assignment(override) for override in parsed]


def _assignment(override: Override) -> Assignment:
    key, text = override.get_key_element().lstrip("+~"), str(override.input_line)
    if not override.is_sweep_override():
        return Assignment(key, override.value(), text)
    values = _values(override)
    return Assignment(key, values[0] if values else None, text, values)


def _values(override: Override) -> list[Any]:
    """Return the values of a sweep, as far as the text lists them."""
    from hydra.core.override_parser.types import QuotedString, ValueType

    if override.value_type not in (ValueType.SIMPLE_CHOICE_SWEEP, ValueType.CHOICE_SWEEP, ValueType.RANGE_SWEEP):
        return []
    values = itertools.islice(override.sweep_iterator(), MOST_VALUES)
    return [value.text if isinstance(value, QuotedString) else value for value in values]


def quoted(text: str) -> str:
    """Return ``text`` as a value that the parser reads back unchanged. Interpolations ``${...}`` are still resolved."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return str(QuotedString(text, Quote.single).with_quotes())
