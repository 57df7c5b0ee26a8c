"""Scores of translations against references. No torch here: nmt-score answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nmt.registry import Registry, import_all


@dataclass(frozen=True)
class Score:
    """One figure and how it was computed."""

    name: str  # as printed: "BLEU", "chrF2", "TER", "exact match"
    value: float  # 0 .. 100 (TER may exceed 100)
    higher_is_better: bool
    signature: str  # sacreBLEU's signature, or our own in the same style
    detail: str = ""  # n-gram precisions, brevity penalty, counts


class Scorer(Protocol):
    """Corpus-level comparison of hypotheses with one or more references per sentence."""

    higher_is_better: bool

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """``references``: one list of lines per reference file, each as long as ``hypotheses``."""
        ...


@dataclass(frozen=True)
class TextOptions:
    """How text is normalised before scoring; handed to every scorer's builder."""

    tokenize: str = "13a"
    lowercase: bool = False


# builder(config, text: TextOptions) -> Scorer
scorers: Registry[Scorer] = Registry("scorer")

import_all(__name__, __path__)
