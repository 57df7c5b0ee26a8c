"""The options of a run that its user chose: those that differ from their defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from nmt.config.option import groups_of
from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig


def changed_options(config: TrainConfig) -> dict[str, Any]:
    """By key. The name of a component always counts; its options are compared with its own defaults."""
    changed: dict[str, Any] = {}
    defaults = to_plain(TrainConfig())
    for key, value in to_plain(config).items():
        if key not in groups_of(TrainConfig):
            changed |= _differences({key: value}, {key: defaults.get(key)})
        elif isinstance(value, dict):
            own_defaults = to_plain(type(getattr(config, key))())
            changed |= {key: value.get("name"), **dict(_differences(value, own_defaults, f"{key}."))}
    return changed


def _differences(given: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
        default = defaults.get(key, dataclasses.MISSING)
        if isinstance(value, dict) and isinstance(default, dict):
            yield from _differences(value, default, f"{prefix}{key}.")
        elif value != default:
            yield f"{prefix}{key}", value
