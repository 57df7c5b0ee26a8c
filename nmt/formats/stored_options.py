"""Checks of the options that a file of another toolkit stores with its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmt.errors import DataError, shown

DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")


def count_of(options: Mapping[str, Any], name: str, origin: str) -> int | None:
    """Return a count that must be above zero; None if it is missing."""
    value = options.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise DataError(f"{origin}: {name}={shown(value)} must be a number above zero")
    return value


def required_count(options: Mapping[str, Any], name: str, origin: str) -> int:
    count = count_of(options, name, origin)
    if count is None:
        raise DataError(f"{origin} has no {name}")
    return count


def require_same_sides(options: Mapping[str, Any], names: tuple[str, ...], origin: str) -> None:
    """Refuse a model whose encoder and decoder differ in one of these sizes."""
    for name in names:
        encoder, decoder = (count_of(options, f"{side}_{name}", origin) for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise DataError(
                f"{origin} has encoder_{name}={encoder} and decoder_{name}={decoder}; nmt supports only equal values"
            )


def dropouts_of(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the dropout rates of training that are above zero."""
    rates = {name: number_of(options, name, default=0.0, highest=0.99) for name in DROPOUTS}
    return {name: rate for name, rate in rates.items() if rate}


def number_of(options: Mapping[str, Any], name: str, *, default: float, highest: float) -> float:
    """Return a number that the weights do not depend on; ``default`` if it is missing or outside 0 to ``highest``."""
    value = options.get(name)
    usual = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= highest
    return float(value) if usual and value is not None else default
