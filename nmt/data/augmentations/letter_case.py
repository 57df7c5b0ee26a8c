"""Capitals: headings, and people who write in capitals throughout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from nmt.data.augmentations import augmentations

_WORD_BEGINS = re.compile(r"(?<!\S)\S")


@dataclass
class UpperCaseConfig:
    """Both sides in capitals. It has no options."""


@augmentations.register("upper_case", UpperCaseConfig)
class UpperCase:
    def __init__(self, config: UpperCaseConfig) -> None:
        pass

    def __call__(self, source: str, target: str, random: Random) -> tuple[str, str]:
        return source.upper(), target.upper()


@dataclass
class TitleCaseConfig:
    """Each word of both sides begins with a capital; its other letters stay. It has no options."""


@augmentations.register("title_case", TitleCaseConfig)
class TitleCase:
    def __init__(self, config: TitleCaseConfig) -> None:
        pass

    def __call__(self, source: str, target: str, random: Random) -> tuple[str, str]:
        return _titled(source), _titled(target)


def _titled(line: str) -> str:
    return _WORD_BEGINS.sub(lambda match: match[0].title(), line)
