"""Counts of right and wrong words and n-grams, clipped as in BLEU: a translation matches a reference n-gram once."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nmt.comparing.words import Words

MAX_ORDER = 4  # words of an n-gram
# The lowest word frequency of each band.
BANDS = (0, 1, 2, 5, 10, 100, 1000)

CutLines = Sequence[Words]
Counts = Counter[Words]


@dataclass(frozen=True)
class WordCounts:
    """Counts of the words of one frequency band, for one system."""

    expected: int  # words of the references
    produced: int  # words of the translations
    right: int  # words of both

    @property
    def precision(self) -> float | None:
        """The share of produced words that are right; None: no word was produced."""
        return self.right / self.produced if self.produced else None

    @property
    def recall(self) -> float | None:
        """The share of reference words that were produced; None: the references have none."""
        return self.right / self.expected if self.expected else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None: the references have no such word."""
        return 2 * self.right / (self.expected + self.produced) if self.expected else None


@dataclass(frozen=True)
class FrequencyBand:
    """Words of similar frequency."""

    least: int
    most: int | None  # None: no upper bound
    systems: Mapping[str, WordCounts]

    @property
    def label(self) -> str:
        if self.most is None:
            return f"{self.least:,} and more"
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,}-{self.most:,}"


@dataclass(frozen=True)
class NGram:
    """An n-gram of up to four words, and its count in each system of a pair."""

    words: Words
    first: int
    second: int

    @property
    def weight(self) -> float:
        """The difference in standard deviations, as in McNemar's test; positive if the second system has more."""
        return (self.second - self.first) / math.sqrt(self.first + self.second)


@dataclass
class Tally:
    """Counts of one system's right and wrong n-grams."""

    right: Counts = field(default_factory=Counter)
    wrong: Counts = field(default_factory=Counter)


def frequency_bands(
    systems: Mapping[str, CutLines], references: Sequence[CutLines], frequencies: Mapping[str, int]
) -> list[FrequencyBand]:
    """Return the bands that contain a word, least frequent first.

    ``frequencies``: the frequency of each word. Each translation is compared with its nearest reference (by F1 of words).
    """
    totals = {name: _word_counts(lines, references) for name, lines in systems.items()}
    bands = []
    for least, following in zip(BANDS, [*BANDS[1:], None]):
        most = None if following is None else following - 1
        systems_of_band = {
            name: WordCounts(*(_total(counts, frequencies, least, most) for counts in counters))
            for name, counters in totals.items()
        }
        if any(counts.expected or counts.produced for counts in systems_of_band.values()):
            bands.append(FrequencyBand(least, most, systems_of_band))
    return bands


def _total(counts: Counter[str], frequencies: Mapping[str, int], least: int, most: int | None) -> int:
    """Sum the counts of the words of a band."""
    limit = math.inf if most is None else most
    return sum(count for word, count in counts.items() if least <= frequencies.get(word, 0) <= limit)


def _word_counts(lines: CutLines, references: Sequence[CutLines]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count the expected, produced and right words."""
    expected, produced, right = Counter[str](), Counter[str](), Counter[str]()
    for words, several in zip(lines, zip(*references)):
        own, nearest = Counter(words), Counter(several[nearest_of(words, several)])
        expected.update(nearest)
        produced.update(own)
        right.update(own & nearest)
    return expected, produced, right


def nearest_of(words: Words, references: Sequence[Words]) -> int:
    """Return the index of the reference nearest to a translation, by F1 of words; the first of equals."""
    if len(references) == 1:
        return 0
    own = Counter(words)

    def f1(number: int) -> float:
        other = references[number]
        return 2 * (own & Counter(other)).total() / max(1, len(words) + len(other))

    return max(range(len(references)), key=f1)


def tallies(systems: Mapping[str, CutLines], references: Sequence[CutLines]) -> dict[str, Tally]:
    """Count n-grams as BLEU does: an n-gram is right as often as any one reference of the line has it."""
    by_system = {name: Tally() for name in systems}
    for rows, several in zip(zip(*systems.values()), zip(*references)):
        most = Counter(ngrams(several[0]))
        for other in several[1:]:
            most |= Counter(ngrams(other))
        for tally, words in zip(by_system.values(), rows):
            own = Counter(ngrams(words))
            right = own & most
            tally.right.update(right)
            tally.wrong.update(own - right)
    return by_system


def ngrams(words: Words) -> Iterator[Words]:
    """Yield the n-grams of one to four words."""
    for order in range(1, MAX_ORDER + 1):
        yield from zip(*(words[begin:] for begin in range(order)))


def decisive(first: Counts, second: Counts, most: int) -> list[NGram]:
    """Return the n-grams that one of two systems has more often, most decisive first.

    At most ``most`` for each length and system. Ties: more frequent first, then longer.
    """

    def order(ngram: NGram) -> tuple[float, int, int, Words]:
        return -abs(ngram.weight), -ngram.first - ngram.second, -len(ngram.words), ngram.words

    ngrams = [NGram(words, first[words], second[words]) for words in {**first, **second}]
    kept: Counter[tuple[int, bool]] = Counter()
    chosen = []
    for ngram in sorted((ngram for ngram in ngrams if ngram.first != ngram.second), key=order):
        kind = len(ngram.words), ngram.weight > 0
        kept[kind] += 1
        if kept[kind] <= most:
            chosen.append(ngram)
    return chosen


def counted(lines: Iterable[Words]) -> Counter[str]:
    """Count each word."""
    return Counter(itertools.chain.from_iterable(lines))
