"""Words and n-grams that translations have right or wrong, clipped: what a reference has twice can be right twice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nmt.comparing.words import Words

LONGEST = 4  # words of an n-gram
# How often a word stands in the text that words are counted in: where a band begins.
BANDS = (0, 1, 2, 5, 10, 100, 1000)

Lines = Sequence[Words]
Counts = Counter[Words]


@dataclass(frozen=True)
class Found:
    """Of the words of one band, in the translations of one system."""

    wanted: int  # of the references
    produced: int  # of the translations
    right: int  # of both

    @property
    def precision(self) -> float | None:
        """Of what was produced, the share that is right; None: nothing was."""
        return self.right / self.produced if self.produced else None

    @property
    def recall(self) -> float | None:
        """Of what was wanted, the share that is there; None: nothing was."""
        return self.right / self.wanted if self.wanted else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both, zero where nothing is right; None: no such word was wanted."""
        return 2 * self.right / (self.wanted + self.produced) if self.wanted else None


@dataclass(frozen=True)
class FrequencyBand:
    """Words that are about as frequent."""

    least: int  # times
    most: int | None  # None: or more
    systems: Mapping[str, Found]

    @property
    def label(self) -> str:
        if self.most is None:
            return f"{self.least:,} and more"
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,}-{self.most:,}"


@dataclass(frozen=True)
class NGram:
    """Up to four words, and how often each system of a pair has them."""

    words: Words
    first: int
    second: int

    @property
    def weight(self) -> float:
        """How decisive the difference is: in standard deviations of tosses of a coin, as in McNemar's test; above zero the
        second system has more."""
        return (self.second - self.first) / math.sqrt(self.first + self.second)


@dataclass
class Tally:
    """N-grams of one system, by how often they are right, and wrong."""

    right: Counts = field(default_factory=Counter)
    wrong: Counts = field(default_factory=Counter)


def frequency_bands(
    systems: Mapping[str, Lines], references: Sequence[Lines], known: Mapping[str, int]
) -> list[FrequencyBand]:
    """Bands that have a word, least frequent first. ``known``: how often words stand in some text. Of several references the
    one counts that has most in common with the translation (by F1 of words)."""
    totals = {name: _word_counts(lines, references) for name, lines in systems.items()}
    bands = []
    for least, following in zip(BANDS, [*BANDS[1:], None]):
        most = None if following is None else following - 1
        found = {}
        for name, three in totals.items():
            sums = [
                sum(count for word, count in counts.items() if _within(known.get(word, 0), least, most))
                for counts in three
            ]
            found[name] = Found(*sums)
        if any(one.wanted or one.produced for one in found.values()):
            bands.append(FrequencyBand(least, most, found))
    return bands


def _within(times: int, least: int, most: int | None) -> bool:
    return least <= times and (most is None or times <= most)


def _word_counts(lines: Lines, references: Sequence[Lines]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Wanted, produced and right, by word."""
    wanted, produced, right = Counter[str](), Counter[str](), Counter[str]()
    for words, several in zip(lines, zip(*references)):
        own, nearest = Counter(words), Counter(several[nearest_of(words, several)])
        wanted.update(nearest)
        produced.update(own)
        right.update(own & nearest)
    return wanted, produced, right


def nearest_of(words: Words, references: Sequence[Words]) -> int:
    """Which reference has most in common with a translation, by F1 of words; the first of equals."""
    if len(references) == 1:
        return 0
    own = Counter(words)

    def f1(number: int) -> float:
        other = references[number]
        return 2 * (own & Counter(other)).total() / max(1, len(words) + len(other))

    return max(range(len(references)), key=f1)


def tallies(systems: Mapping[str, Lines], references: Sequence[Lines]) -> dict[str, Tally]:
    """As BLEU counts: an n-gram is right as often as some reference of the line has it."""
    found = {name: Tally() for name in systems}
    for rows, several in zip(zip(*systems.values()), zip(*references)):
        most = Counter(ngrams(several[0]))
        for other in several[1:]:
            most |= Counter(ngrams(other))
        for tally, words in zip(found.values(), rows):
            own = Counter(ngrams(words))
            right = own & most
            tally.right.update(right)
            tally.wrong.update(own - right)
    return found


def ngrams(words: Words) -> Iterator[Words]:
    """Of one to four words."""
    for order in range(1, LONGEST + 1):
        yield from zip(*(words[begin:] for begin in range(order)))


def decisive(first: Counts, second: Counts, most: int) -> list[NGram]:
    """N-grams that one of two systems has more often than the other, the most decisive first; of each length and each system
    at most ``most``. Of equals comes first what is more frequent, then what is longer."""
    found = [NGram(words, first[words], second[words]) for words in {**first, **second}]
    found = sorted((one for one in found if one.first != one.second), key=_order)
    kept: Counter[tuple[int, bool]] = Counter()
    chosen = []
    for one in found:
        kind = len(one.words), one.weight > 0
        kept[kind] += 1
        if kept[kind] <= most:
            chosen.append(one)
    return chosen


def _order(one: NGram) -> tuple[float, int, int, Words]:
    return -abs(one.weight), -one.first - one.second, -len(one.words), one.words


def counted(lines: Iterable[Words]) -> Counter[str]:
    """How often each word stands there."""
    known: Counter[str] = Counter()
    for words in lines:
        known.update(words)
    return known
