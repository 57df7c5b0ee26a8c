"""Sentences without their full stop, as in headings, lists and messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from nmt.data.augmentations import augmentations

# Of many scripts: Latin, Arabic and Urdu, Devanagari, Chinese and Japanese, Ethiopic, Armenian.
_FINAL = re.compile("[.!?\u2026\u061f\u06d4\u0964\u0965\u3002\uff01\uff0e\uff1f\u1362\u0589]+\\s*$")


@dataclass
class DropFinalPunctuationConfig:
    """Both sides lose the punctuation at their end, if both have some. It has no options."""


@augmentations.register("drop_final_punctuation", DropFinalPunctuationConfig)
class DropFinalPunctuation:
    def __init__(self, config: DropFinalPunctuationConfig) -> None:
        pass

    def __call__(self, source: str, target: str, random: Random) -> tuple[str, str]:
        ends = _FINAL.search(source), _FINAL.search(target)
        if ends[0] is None or ends[1] is None:
            return source, target
        return source[: ends[0].start()].rstrip(), target[: ends[1].start()].rstrip()
