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
from nmt.data.parallel_text import ParallelText
from nmt.data.report import PreprocessReport, SplitTally
from nmt.data.text import Reading, visible_spaces
from nmt.data.vocabulary import EOS, Ints
from nmt.pages.charts import Chart, Series, render

_BINS = 60
_MOST_FREQUENT = 30
_DRAWN = 0.999  # of the sentences, at their lengths; longer ones at the end
_BLOCK = 2**22  # tokens counted at a time
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
    sentences: RaggedArray

    @cached_property
    def lengths(self) -> Ints:
        """In pieces, without eos."""
        lengths: Ints = self.sentences.lengths - 1
        return lengths


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
        lengths = side.lengths
        if len(lengths) == 0:
            return cls(side.split, side.language, 0, 0.0, 0.0, 0.0, 0)
        median, high = np.quantile(lengths, [0.5, 0.95])
        mean = round(float(lengths.mean()), 2)
        return cls(side.split, side.language, len(lengths), mean, float(median), float(high), int(lengths.max()))


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
                arrays = RaggedArray(*sentence_files(folder, split.split, side.language), least=1)
                yield _Side(split.split, side.language, tokenizer.vocabulary.pieces, arrays)


def _charts(sides: Sequence[_Side]) -> list[Chart]:
    """Of the first split, which is the training text if there is any."""
    title = f"Length of sentences ({sides[0].split}, pieces)"
    series = [Series(side.language, _histogram(side.lengths)) for side in sides]
    charts = [Chart(title, series, from_zero=True, over="length", ends=False)]
    if len(sides) == 2:
        source, target = (side.lengths for side in sides)
        ratios = (target / np.maximum(source, 1)).clip(max=_HIGHEST_RATIO)
        counts, edges = np.histogram(ratios, bins=_RATIO_BINS, range=(0.0, _HIGHEST_RATIO))
        points = list(zip(((edges[:-1] + edges[1:]) / 2).tolist(), counts.astype(float).tolist()))
        title = f"Target length over source length ({sides[0].split})"
        charts.append(Chart(title, [Series("pairs", points)], _HIGHEST_RATIO, from_zero=True, over="ratio", ends=False))
    return [chart for chart in charts if chart.drawn]


def _histogram(lengths: Ints) -> list[tuple[float, float]]:
    """(length, sentences of about that length), up to where all but a few are."""
    if len(lengths) == 0:
        return []
    last = max(1, int(np.quantile(lengths, _DRAWN)))
    width = math.ceil((last + 1) / _BINS)
    counts = np.bincount(np.minimum(lengths, last) // width)
    return [(number * width + (width - 1) / 2, float(count)) for number, count in enumerate(counts.tolist())]


def _frequent(side: _Side) -> list[tuple[str, int, float]]:
    """The most frequent pieces, how often they stand there, and their share."""
    counts, tokens = np.zeros(len(side.pieces), dtype=np.int64), side.sentences.values
    for begin in range(0, len(tokens), _BLOCK):
        counts += np.bincount(tokens[begin : begin + _BLOCK], minlength=len(side.pieces))
    counts[EOS] = 0
    total = max(1, int(counts.sum()))
    first = [number for number in np.argsort(-counts, kind="stable")[:_MOST_FREQUENT].tolist() if counts[number]]
    return [(visible_spaces(side.pieces[number]), int(counts[number]), counts[number] / total) for number in first]
