"""Scores of translations against references. No torch here: nmt-score answers at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nmt.errors import DataError, UsageError
from nmt.registry import Registry, import_all

# "@@ " is subword-nmt's mark of a word that goes on, U+2581 sentencepiece's mark of a word that begins.
_PIECE_MARKS = re.compile("@@(?: |$)|\u2581")
# A full stop or comma after a space: detokenised text of any language hardly ever has one.
_LOOSE_PUNCTUATION = re.compile(r" [.,](?: |$)")
_TOKENISED_SHARE = 0.25  # of the lines; raw text with dialogue or ellipses stays far below


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


@dataclass(frozen=True)
class TextOptions:
    """How text is normalised before scoring; handed to every scorer's builder."""

    tokenize: str = "13a"
    lowercase: bool = False


# builder(config, text: TextOptions) -> Scorer
scorers: Registry[Scorer] = Registry("scorer")


def check_lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """There is something to score, and every reference has as many lines as there are hypotheses."""
    if not hypotheses:
        raise DataError("there is not a single line to score")
    if not references:
        raise UsageError("there is no reference to score against")
    for lines in references:
        assert len(lines) == len(hypotheses), f"{len(hypotheses)} hypotheses, {len(lines)} references"


def lines_with_piece_marks(lines: Sequence[str]) -> int:
    """How many lines still show how their words were cut into pieces (BPE, sentencepiece)."""
    return sum(_PIECE_MARKS.search(line) is not None for line in lines)


def looks_tokenised(lines: Sequence[str]) -> bool:
    """Whether punctuation stands apart from the words in a good part of the lines."""
    loose = sum(_LOOSE_PUNCTUATION.search(line) is not None for line in lines)
    return loose > _TOKENISED_SHARE * len(lines)


import_all(__name__, __path__)
