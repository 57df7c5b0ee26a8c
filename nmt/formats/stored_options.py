"""Checks of the options that a file of another toolkit stores with its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.config.exchange import ImportConfig
from nmt.errors import DataError, shown
from nmt.storage.reading import read_mapping

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


def languages_of(folder: Path, config: Mapping[str, Any], options: ImportConfig) -> list[str]:
    """Return the languages that the options or else the files of Hugging Face name; empty: unknown."""
    stored = config.get("langs")  # of FSMT, and of nmt-export
    if not isinstance(stored, list) or len(stored) != 2:
        path = folder / "tokenizer_config.json"  # of OPUS-MT
        tree = read_mapping(path) if path.is_file() else {}
        stored = [tree.get(f"{side}_lang") or "" for side in ("source", "target")]
    return [language or str(known) for language, known in zip((options.source_lang, options.target_lang), stored)]


def dropouts_of(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the dropout rates of training that are above zero."""
    rates = {name: number_of(options, name, default=0.0, highest=0.99) for name in DROPOUTS}
    return {name: rate for name, rate in rates.items() if rate}


def number_of(options: Mapping[str, Any], name: str, *, default: float, highest: float) -> float:
    """Return a number that the weights do not depend on; ``default`` if it is missing or outside 0 to ``highest``."""
    value = options.get(name)
    usual = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= highest
    return float(value) if usual and value is not None else default
