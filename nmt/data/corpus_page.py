"""A corpus as one HTML page: what was read, kept and dropped, how long sentences are, and what they are made of.

It needs no script and no network, and says nothing of when it was made, so that the same text makes the same page.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from nmt.data.corpus import PAGE, RaggedArray, sentence_files
from nmt.data.filters import Reason
from nmt.data.language_pair import LanguagePair
from nmt.data.lengths import length_counts
from nmt.data.parallel_text import ParallelText
from nmt.data.report import PreprocessReport, SplitTally
from nmt.data.text import Reading, visible_spaces
from nmt.data.vocabulary import EOS, Ints
from nmt.pages.charts import Chart, Series, render

_BINS = 60
_MOST_FREQUENT = 30
_DRAWN = 0.999  # of the sentences, at their lengths; longer ones at the end
_BLOCK, _SENTENCES = 2**20, 2**16  # tokens, and sentences, that are looked at together
_PLAIN = (Reason.kept, Reason.duplicate)  # what a pair that is repeated says stands among the pairs that are kept
_RATIO_BINS, _HIGHEST_RATIO = 40, 4.0


@dataclass(frozen=True)
class Example:
    """A pair that was dropped."""

    number: int  # in the text, from 1
    source: str
    target: str


Examples = Mapping[str, Sequence[Example]]  # by the reason


@dataclass(frozen=True)
class _Side:
    """One language of a split."""

    split: str
    language: str
    pieces: Sequence[str]
    tokens: Path
    sentences: RaggedArray

    @cached_property
    def counts(self) -> Ints:
        """How many sentences have 0, 1, 2 ... pieces, without eos."""
        return length_counts(self.sentences.lengths)[1:]


@dataclass(frozen=True)
class Lengths:
    """Of the sentences of one side of a split, in pieces without eos."""

    split: str
    language: str
    sentences: int
    mean: float
    median: float
    percentile_95: float
    longest: int

    @classmethod
    def of(cls, side: _Side) -> Lengths:
        counts = side.counts
        sentences = int(counts.sum())
        if sentences == 0:
            return cls(side.split, side.language, 0, 0.0, 0.0, 0.0, 0)
        median, high = _quantile(counts, 0.5), _quantile(counts, 0.95)
        mean = round(int(counts @ np.arange(len(counts))) / sentences, 2)
        return cls(side.split, side.language, sentences, mean, median, high, len(counts) - 1)


def write(folder: Path, pair: LanguagePair, report: PreprocessReport, examples: Mapping[str, Examples]) -> None:
    """``folder`` holds the arrays of all splits; ``examples``: of each split, pairs that were dropped, by their reasons."""
    sides = list(_sides(folder, pair, report))
    text = render(
        "corpus.html",
        languages=list(dict.fromkeys(side.language for side in sides)),
        report=report,
        warnings=report.warnings(),
        lengths=[Lengths.of(side) for side in sides],
        charts=_charts([side for side in sides if side.split == sides[0].split]),
        frequent={side.language: _frequent(side) for side in sides if side.split == sides[0].split},
        examples=examples,
    )
    (folder / PAGE).write_text(text, encoding="utf-8", errors="replace")


def examples_of(text: ParallelText, tally: SplitTally, reading: Reading) -> dict[str, list[Example]]:
    """The first pairs that were dropped for each reason that is not plain. The text is read as far as the last of them."""
    shown = {reason: numbers for reason, numbers in tally.examples.items() if reason not in _PLAIN}
    wanted = set(itertools.chain.from_iterable(shown.values()))
    if not wanted:
        return {}
    pairs = itertools.islice(enumerate(text.pairs(reading), start=text.begin), max(wanted) - text.begin + 1)
    found = {number: pair for number, pair in pairs if number in wanted}
    return {
        reason.text: [Example(number + 1, *(side or "" for side in found[number])) for number in numbers]
        for reason, numbers in sorted(shown.items())
    }


def _sides(folder: Path, pair: LanguagePair, report: PreprocessReport) -> Iterator[_Side]:
    for split in report.splits:
        for side, tokenizer in ((split.source, pair.source), (split.target, pair.target)):
            if side is not None:
                files = sentence_files(folder, split.split, side.language)
                pieces = tokenizer.vocabulary.pieces
                yield _Side(split.split, side.language, pieces, files[0], RaggedArray(*files, least=1))


def _charts(sides: Sequence[_Side]) -> list[Chart]:
    """Of the first split, which is the training text if there is any."""
    title = f"Length of sentences ({sides[0].split}, pieces)"
    series = [Series(side.language, _histogram(side.counts)) for side in sides]
    charts = [Chart(title, series, from_zero=True, over="length", ends=False)]
    if len(sides) == 2:
        counts, bins = np.zeros(_RATIO_BINS, dtype=np.int64), np.linspace(0.0, _HIGHEST_RATIO, _RATIO_BINS + 1)
        for source, target in zip(*map(_lengths_of, sides)):
            ratios = (target / np.maximum(source, 1)).clip(max=_HIGHEST_RATIO)
            counts += np.histogram(ratios, bins=_RATIO_BINS, range=(0.0, _HIGHEST_RATIO))[0]
        points = list(zip(((bins[:-1] + bins[1:]) / 2).tolist(), counts.astype(float).tolist()))
        title = f"Target length over source length ({sides[0].split})"
        charts.append(Chart(title, [Series("pairs", points)], _HIGHEST_RATIO, from_zero=True, over="ratio", ends=False))
    return [chart for chart in charts if chart.drawn]


def _lengths_of(side: _Side) -> Iterator[Ints]:
    """Of all sentences, a block at a time."""
    lengths = side.sentences.lengths
    return (lengths[begin : begin + _SENTENCES] - 1 for begin in range(0, len(lengths), _SENTENCES))


def _quantile(counts: Ints, share: float) -> float:
    """Of lengths that are counted, between the two next to it as numpy has it."""
    ends = np.cumsum(counts)
    place = share * float(ends[-1] - 1)
    low, high = np.searchsorted(ends, [math.floor(place), math.ceil(place)], side="right").tolist()
    return float(low + (high - low) * (place - math.floor(place)))


def _histogram(counts: Ints) -> list[tuple[float, float]]:
    """(length, sentences of about that length), up to where all but a few are."""
    if counts.sum() == 0:
        return []
    last = max(1, int(_quantile(counts, _DRAWN)))
    width = math.ceil((last + 1) / _BINS)
    bins = np.bincount(np.minimum(np.arange(len(counts)), last) // width, weights=counts)
    return [(number * width + (width - 1) / 2, float(count)) for number, count in enumerate(bins.tolist())]


def _frequent(side: _Side) -> list[tuple[str, int, float]]:
    """The most frequent pieces, how often they stand there, and their share."""
    counts = np.zeros(len(side.pieces), dtype=np.int64)
    for begin in range(0, len(side.sentences.values), _BLOCK):
        mapped = np.load(side.tokens, mmap_mode="r")  # anew: what was looked at before does not stay in memory
        counts += np.bincount(mapped[begin : begin + _BLOCK], minlength=len(side.pieces))
    counts[EOS] = 0
    total = max(1, int(counts.sum()))
    first = [number for number in np.argsort(-counts, kind="stable")[:_MOST_FREQUENT].tolist() if counts[number]]
    return [(visible_spaces(side.pieces[number]), int(counts[number]), counts[number] / total) for number in first]
