"""Augmentations: changes of the text of a sentence pair that differ from epoch to epoch.

They prepare a model for text that differs from its training text. No torch here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from nmt.config.option import alternatives
from nmt.errors import UsageError, did_you_mean
from nmt.registry import Registry, import_all

# Source, target and the random numbers of this pair in this epoch -> source and target. Use no other random numbers.
Augmentation = Callable[[str, str, Random], tuple[str, str]]

# builder(config) -> Augmentation
augmentations: Registry[Augmentation] = Registry("augmentation")

OPTION = "variation.augment (--augment)"


@dataclass(frozen=True)
class Augment:
    """An augmentation, and the share of the sentence pairs that it changes."""

    name: str
    share: float
    change: Augmentation


def chosen(items: Sequence[str]) -> list[Augment]:
    """Build the augmentations of ``NAME=SHARE:OPTION=VALUE:...``; they are applied in this order."""
    return [_chosen(item) for item in items]


def _chosen(item: str) -> Augment:
    first, *others = item.split(":")
    name, _, number = (part.strip() for part in first.partition("="))
    config_class = augmentations.config_class(name)
    share = 0.0
    with contextlib.suppress(ValueError):
        share = float(number)
    if not 0.0 < share <= 1.0:
        raise UsageError(
            f"{OPTION}: '{item}' needs the fraction of pairs to change, above 0 and at most 1, such as {name}=0.05"
        )
    options = dict(_option(item, part, name, config_class) for part in others)
    return Augment(name, share, augmentations.build(config_class(**options)))


def _option(item: str, part: str, name: str, config_class: type) -> tuple[str, Any]:
    key, equals, value = (piece.strip() for piece in part.partition("="))
    names = [field.name for field in dataclasses.fields(config_class)]
    if not equals or key not in names:
        listed = f"it has {', '.join(names)}" if names else "it has none"
        raise UsageError(f"{OPTION}: '{item}': {name} has no option '{key}'{did_you_mean(key, names)}; {listed}")
    kind = alternatives(typing.get_type_hints(config_class)[key])[0]
    try:
        return key, {"true": True, "false": False}[value] if kind is bool else kind(value)
    except (KeyError, ValueError):
        raise UsageError(f"{OPTION}: '{item}': {key}={value} must be of type {kind.__name__}") from None


import_all(__name__, __path__)
