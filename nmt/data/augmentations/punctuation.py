"""Sentences without final punctuation, as in headings, lists and messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from nmt.data.augmentations import Augmentation, augmentations

# Of many scripts: Latin, Arabic and Urdu, Devanagari, Chinese and Japanese, Ethiopic, Armenian.
_FINAL = re.compile("[.!?\u2026\u061f\u06d4\u0964\u0965\u3002\uff01\uff0e\uff1f\u1362\u0589]+\\s*$")


@dataclass
class DropFinalPunctuationConfig:
    """No final punctuation on both sides, if both have some; no options."""


@augmentations.register("drop_final_punctuation", DropFinalPunctuationConfig)
def drop_final_punctuation(config: DropFinalPunctuationConfig) -> Augmentation:
    return _without_final_punctuation


def _without_final_punctuation(source: str, target: str, random: Random) -> tuple[str, str]:
    ends = _FINAL.search(source), _FINAL.search(target)
    if ends[0] is None or ends[1] is None:
        return source, target
    return source[: ends[0].start()].rstrip(), target[: ends[1].start()].rstrip()
