"""Count signs of trouble that a score hides: hypotheses that are empty, copied, far too long, or repetitive.

Words are separated by spaces, independent of the metrics. For text without spaces only empty lines and copies are useful.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

LONGEST_REPEATED = 4  # words of an n-gram
TIMES = 4  # in a row
# A hypothesis is over-long if it has this many times the words of the reference, and this many words more.
OVER_LONG, OVER_LONG_BY = 2.0, 10
LABELS = {  # in tables
    "empty": "empty",
    "over_long": "over-long",
    "repeated": "repeated n-grams",
    "copies": "copies of the source",
    "unusual_length": "length far from the source",
}
OUTSIDE = 100  # one in this many references is below the usual length ratios, and one above


@dataclass(frozen=True)
class Signs:
    """Signs of trouble of one system, as numbers of lines. ``copies`` and ``unusual_length`` need sources."""

    lines: int
    length_ratio: float | None  # words of hypotheses / words of the first references; None: those have no words
    empty: int  # no words, although a reference has some
    over_long: int  # more than twice as long as the longest reference, and by more than ten words
    repeated: int  # with an n-gram of one to four words at least four times in a row
    copies: int | None = None  # equal to the source, unlike every reference
    unusual_length: int | None = None  # ratio to the source's length outside the middle 98 % of the references' ratios

    def counts(self) -> dict[str, int]:
        """Return the counts that are known, by name."""
        return {name: count for name, count in asdict(self).items() if name in LABELS and count is not None}


def signs(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] | None = None
) -> Signs:
    """Count signs of trouble. ``references``: a list of lines for each file; lengths are compared with the first."""
    words = [line.split() for line in hypotheses]
    lengths = [len(line) for line in words]
    reference_lengths = [[len(line.split()) for line in lines] for lines in references]
    longest = [max(several) for several in zip(*reference_lengths)]
    total = sum(reference_lengths[0])
    signs_of_lines = Signs(
        lines=len(words),
        length_ratio=sum(lengths) / total if total else None,
        empty=sum(not length and bool(most) for length, most in zip(lengths, longest)),
        over_long=sum(
            length > OVER_LONG * most and length > most + OVER_LONG_BY for length, most in zip(lengths, longest)
        ),
        repeated=sum(map(is_repetitive, words)),
    )
    if sources is None:
        return signs_of_lines
    of_sources = [len(line.split()) for line in sources]
    return replace(
        signs_of_lines,
        copies=sum(
            bool(line) and line == source.split() and source.split() not in (text.split() for text in several)
            for line, source, several in zip(words, sources, zip(*references))
        ),
        unusual_length=_unusual(lengths, reference_lengths[0], of_sources),
    )


def plain_signs(signs: Signs) -> dict[str, Any]:
    """Return the signs for JSON."""
    counts = {sign: {"count": count, "share": count / signs.lines} for sign, count in signs.counts().items()}
    return {"length_ratio": signs.length_ratio, **counts}


def is_repetitive(words: Sequence[str]) -> bool:
    """Whether an n-gram of up to four words occurs four times in a row."""
    return any(_repeats(words, order) for order in range(1, LONGEST_REPEATED + 1))


def _repeats(words: Sequence[str], order: int) -> bool:
    """Whether an n-gram of ``order`` words occurs four times in a row: each word equals the one ``order`` before it."""
    run = 0
    for word, before in zip(words[order:], words):
        run = run + 1 if word == before else 0
        if run == (TIMES - 1) * order:
            return True
    return False


def _unusual(lengths: Sequence[int], reference_lengths: Sequence[int], of_sources: Sequence[int]) -> int:
    """Count the hypotheses whose length ratio to the source is outside the middle 98 % of the references' ratios."""
    usual = sorted(map(_ratio, reference_lengths, of_sources))
    left_out = len(usual) // OUTSIDE
    least, most = usual[left_out], usual[-1 - left_out]
    return sum(not least <= ratio <= most for ratio in map(_ratio, lengths, of_sources))


def _ratio(length: int, of_source: int) -> float:
    """The length divided by that of the source. Two empty lines have the ratio 1."""
    if of_source == 0:
        return 1.0 if length == 0 else math.inf
    return length / of_source
