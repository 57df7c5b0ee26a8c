"""Capitals, as in headings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nmt.data.augmentations import Augmentation, augmentations

_WORD_BEGINS = re.compile(r"(?<!\S)\S")


@dataclass
class UpperCaseConfig:
    """Both sides in capitals; no options."""


@augmentations.register("upper_case", UpperCaseConfig)
def upper_case(config: UpperCaseConfig) -> Augmentation:
    return lambda source, target, _: (source.upper(), target.upper())


@dataclass
class TitleCaseConfig:
    """A capital at the beginning of each word of both sides; no options."""


@augmentations.register("title_case", TitleCaseConfig)
def title_case(config: TitleCaseConfig) -> Augmentation:
    return lambda source, target, _: (_titled(source), _titled(target))


def _titled(line: str) -> str:
    return _WORD_BEGINS.sub(lambda match: match[0].title(), line)
