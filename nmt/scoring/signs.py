"""Signs of trouble that a score hides: translations that are empty, copied, far too long, or stuck in a loop.

Counted in words between spaces, whatever the metrics take for words; of text without spaces only empty lines and copies mean
much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

LONGEST_REPEATED = 4  # words of an n-gram
TIMES = 4  # in a row
OVER_LONG = 2.0  # times the words of the reference,
OVER_LONG_BY = 10  # and this many more
TOLD = {  # what each is called
    "empty": "empty",
    "over_long": "over-long",
    "repeated": "repeated n-grams",
    "copies": "copies of the source",
    "unusual_length": "length far from the source",
}
OUTSIDE = 100  # one of so many references lies below the usual lengths, and one above


@dataclass(frozen=True)
class Signs:
    """Of one system. Lines are counted; what needs sources is None without them."""

    lines: int
    length_ratio: float | None  # words of the hypotheses over those of the (first) references; None: those have none
    empty: int  # no word, where the reference has one
    over_long: int  # more than twice the words of the longest reference, and more than ten more
    repeated: int  # an n-gram of one to four words that stands four times in a row or more
    copies: int | None = None  # the source itself, where no reference is
    unusual_length: int | None = None  # length beside the source's as 98 of 100 references do not have it

    def counts(self) -> dict[str, int]:
        """By name, those that there are."""
        return {name: count for name, count in asdict(self).items() if name in TOLD and count is not None}


def signs(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] | None = None
) -> Signs:
    """Count them. ``references``: one list of lines for each file; the first is what lengths are compared with."""
    words = [line.split() for line in hypotheses]
    lengths = [len(line) for line in words]
    wanted = [[len(line.split()) for line in lines] for lines in references]
    longest = [max(several) for several in zip(*wanted)]
    total = sum(wanted[0])
    found = Signs(
        lines=len(words),
        length_ratio=sum(lengths) / total if total else None,
        empty=sum(not length and bool(most) for length, most in zip(lengths, longest)),
        over_long=sum(
            length > OVER_LONG * most and length > most + OVER_LONG_BY for length, most in zip(lengths, longest)
        ),
        repeated=sum(map(is_repetitive, words)),
    )
    if sources is None:
        return found
    of_sources = [len(line.split()) for line in sources]
    return replace(
        found,
        copies=sum(
            bool(line) and line == source.split() and source.split() not in (text.split() for text in several)
            for line, source, several in zip(words, sources, zip(*references))
        ),
        unusual_length=_unusual(lengths, wanted[0], of_sources),
    )


def plain_signs(found: Signs) -> dict[str, Any]:
    """As JSON has them."""
    counts = {sign: {"count": count, "share": count / found.lines} for sign, count in found.counts().items()}
    return {"length_ratio": found.length_ratio, **counts}


def is_repetitive(words: Sequence[str]) -> bool:
    """Whether an n-gram of up to four words stands four times in a row."""
    return any(_repeats(words, order) for order in range(1, LONGEST_REPEATED + 1))


def _repeats(words: Sequence[str], order: int) -> bool:
    """Then so many words in a row are each the same as the one an n-gram before."""
    run = 0
    for word, before in zip(words[order:], words):
        run = run + 1 if word == before else 0
        if run == (TIMES - 1) * order:
            return True
    return False


def _unusual(lengths: Sequence[int], wanted: Sequence[int], of_sources: Sequence[int]) -> int:
    """How many hypotheses are shorter or longer, for their source, than the middle 98 of 100 references."""
    usual = sorted(_ratios(wanted, of_sources))
    left_out = len(usual) // OUTSIDE
    least, most = usual[left_out], usual[-1 - left_out]
    return sum(not least <= ratio <= most for ratio in _ratios(lengths, of_sources))


def _ratios(lengths: Iterable[int], of_sources: Iterable[int]) -> list[float]:
    """One is added to both, so that an empty line has a ratio too."""
    return [(length + 1) / (source + 1) for length, source in zip(lengths, of_sources)]
