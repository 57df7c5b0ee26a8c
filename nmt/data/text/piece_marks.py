"""Text that another program has cut into tokens, recognized by its marks, and joined again.

subword_nmt      "hau@@ s steht": a token that ends in "@@" continues in the next one, which may be missing at the end
sentencepiece    "\\u2581hau s \\u2581steht": spaces separate tokens, and U+2581 replaces the spaces of the text
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from nmt.config.choices import CONTINUED, WORD_START, PieceMarks

_PATTERNS = {
    PieceMarks.sentencepiece: re.compile(f"(?:^| ){WORD_START}"),
    PieceMarks.subword_nmt: re.compile(rf"[^ ]{CONTINUED}(?: |$)"),
}
# Raw text has almost no words that end in "@@", and a large vocabulary cuts few words. Text that sentencepiece cut has
# its mark in every line with two words; raw text may have the character in some lines.
_SHARE_OF_LINES = {PieceMarks.sentencepiece: 0.5, PieceMarks.subword_nmt: 0.01}
SHOWN = {PieceMarks.sentencepiece: f"'{WORD_START}'", PieceMarks.subword_nmt: f"'{CONTINUED} '"}  # for messages
SAMPLE_LINES = 10_000


def recognized(lines: Iterable[str | None]) -> tuple[PieceMarks, int, int]:
    """Recognize how a text was cut. Return the marks, the number of lines that have them, and of lines sampled."""
    sample = list(itertools.islice((line for line in lines if line is not None and line.strip()), SAMPLE_LINES))
    for marks, share in _SHARE_OF_LINES.items():
        count = sum(_PATTERNS[marks].search(line) is not None for line in sample)
        if count and count >= share * len(sample):
            return marks, count, len(sample)
    return PieceMarks.none, 0, len(sample)


def joined(line: str, marks: PieceMarks) -> str:
    """Join the tokens of a line to words. Other words with "@", such as "@-@", are not changed."""
    if marks is PieceMarks.subword_nmt:
        return f"{line} ".replace(f"{CONTINUED} ", "").rstrip(" ")
    if marks is PieceMarks.sentencepiece:
        return line.replace(" ", "").replace(WORD_START, " ").strip(" ")
    return line


def joined_lines(lines: Sequence[str], marks: PieceMarks) -> list[str]:
    """Join the lines of a text; a text that sentencepiece did not cut keeps its spaces."""
    if marks is PieceMarks.sentencepiece and recognized(lines)[0] is not marks:
        return list(lines)
    return [joined(line, marks) for line in lines]
