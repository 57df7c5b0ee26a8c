"""Text that comes in pieces already, cut by subword-nmt or sentencepiece: how it is recognised, and joined to words again.

subword_nmt      "hau@@ s steht": a piece that ends in "@@" goes on with the next one, which may be missing at the end
sentencepiece    "\u2581hau s \u2581steht": spaces separate pieces, U+2581 stands where the text had a space
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmt.config.choices import PieceMarks

_WORD_BEGINS = "\u2581"
_WORD_GOES_ON = re.compile(r"[^ ]@@(?: |$)")
_PIECE_BEGINS_A_WORD = re.compile(f"(?:^| ){_WORD_BEGINS}")

# Raw text has next to no words that end in "@@", and a large vocabulary cuts few words. Text that sentencepiece cut has
# its mark in every line with two words, and raw text may have the character in some.
_SHARE_OF_LINES = {PieceMarks.sentencepiece: 0.5, PieceMarks.subword_nmt: 0.01}
_PATTERNS = {PieceMarks.sentencepiece: _PIECE_BEGINS_A_WORD, PieceMarks.subword_nmt: _WORD_GOES_ON}

SHOWN = {PieceMarks.sentencepiece: f"'{_WORD_BEGINS}'", PieceMarks.subword_nmt: "'@@ '"}  # as messages name the marks
SAMPLE_LINES = 10_000  # enough to tell how a text is cut


@dataclass(frozen=True)
class Recognised:
    """What a sample of a text says."""

    marks: PieceMarks
    lines: int = 0  # that show these marks
    of: int = 0  # lines of the sample that are not blank


def recognised(lines: Iterable[str | None]) -> Recognised:
    """How a text was cut, judging by its first lines; None and blank lines count for nothing."""
    sample = list(itertools.islice((line for line in lines if line is not None and line.strip()), SAMPLE_LINES))
    for marks, share in _SHARE_OF_LINES.items():
        count = sum(_PATTERNS[marks].search(line) is not None for line in sample)
        if count and count >= share * len(sample):
            return Recognised(marks, count, len(sample))
    return Recognised(PieceMarks.none, 0, len(sample))


def joined(line: str, marks: PieceMarks) -> str:
    """A line of pieces as the line of its words. Other words with "@", such as "@-@", stay as they are."""
    if marks is PieceMarks.subword_nmt:
        return f"{line} ".replace("@@ ", "").rstrip(" ")
    if marks is PieceMarks.sentencepiece:
        return line.replace(" ", "").replace(_WORD_BEGINS, " ").strip(" ")
    return line


def joined_lines(lines: Sequence[str], marks: PieceMarks) -> list[str]:
    """All lines of a text, joined; a text that sentencepiece did not cut keeps its spaces."""
    if marks is PieceMarks.sentencepiece and recognised(lines).marks is not marks:
        return list(lines)
    return [joined(line, marks) for line in lines]
