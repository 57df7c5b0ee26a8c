"""Augmentations: changes of the text of a sentence pair that differ from epoch to epoch.

They prepare a model for text that differs from its training text. No torch here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from nmt.config.listed import with_options
from nmt.errors import UsageError
from nmt.registry import Registry, import_all

# Source, target and the random numbers of this pair in this epoch -> source and target. Use no other random numbers.
Augmentation = Callable[[str, str, Random], tuple[str, str]]

# builder(config) -> Augmentation
augmentations: Registry[Augmentation] = Registry("augmentation")

OPTION = "augmentations (--augment, --noise)"


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
    return Augment(name, share, augmentations.build(with_options(config_class, name, others, item, OPTION)))


import_all(__name__, __path__)
