"""The HTML page of a corpus: pairs read, kept and dropped, lengths of sentences, and frequent tokens.

It needs no script and no network, and has no date, so the same text makes the same page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from nmt.data.corpus.folder import PAGE
from nmt.data.corpus.lengths import length_counts, percentile
from nmt.data.corpus.rows import RaggedArray, sentence_files
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import visible_spaces
from nmt.data.vocabulary import EOS, Ints
from nmt.pages.charts import Chart, Series, render
from nmt.reporting.preprocess_report import PreprocessReport

_BINS = 60
_MOST_FREQUENT = 30
_DRAWN = 99.9  # percentage of sentences shown at their lengths; the last bin holds longer ones
_BLOCK, _SENTENCES = 2**20, 2**16  # tokens and sentences processed at a time
_RATIO_BINS, _HIGHEST_RATIO = 40, 4.0


@dataclass(frozen=True)
class Example:
    """A pair that was dropped."""

    number: int  # in the text, from 1
    source: str
    target: str


Examples = Mapping[str, Sequence[Example]]  # by the filter's message


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
        """Numbers of sentences with 0, 1, 2 ... tokens, without eos."""
        return length_counts(self.sentences.lengths)[1:]


def write(folder: Path, pair: LanguagePair, report: PreprocessReport, examples: Mapping[str, Examples]) -> None:
    """Write the page of a folder with the arrays of all splits. ``examples``: dropped pairs of each split."""
    sides = list(_sides(folder, pair, report))
    of_first_split = [side for side in sides if side.split == sides[0].split]  # of the training text if there is any
    text = render(
        "corpus.html",
        languages=list(dict.fromkeys(side.language for side in sides)),
        report=report,
        warnings=report.warnings(),
        lengths=[_row_of_lengths(side) for side in sides],
        charts=_charts(of_first_split),
        frequent={side.language: _frequent(side) for side in of_first_split},
        examples=examples,
    )
    (folder / PAGE).write_text(text, encoding="utf-8", errors="replace")


def _sides(folder: Path, pair: LanguagePair, report: PreprocessReport) -> Iterator[_Side]:
    for split in report.splits:
        for side, tokenizer in ((split.source, pair.source), (split.target, pair.target)):
            if side is not None:
                files = sentence_files(folder, split.split, side.language)
                pieces = tokenizer.vocabulary.pieces
                yield _Side(split.split, side.language, pieces, files[0], RaggedArray(*files, least=1))


def _row_of_lengths(side: _Side) -> tuple[str, ...]:
    """Return a row of the table of lengths: number of sentences, mean, median, 95th percentile and maximum, without eos."""
    counts = side.counts
    sentences = int(counts.sum())
    if sentences == 0:
        return (side.split, side.language, *["0"] * 5)
    mean = round(int(counts @ np.arange(len(counts))) / sentences, 2)
    figures = (mean, percentile(counts, 50), percentile(counts, 95))
    return (side.split, side.language, f"{sentences:,}", *(f"{value:g}" for value in figures), f"{len(counts) - 1:,}")


def _charts(sides: Sequence[_Side]) -> list[Chart]:
    title = f"Length of sentences ({sides[0].split}, tokens)"
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
    """The lengths of all sentences, a block at a time."""
    lengths = side.sentences.lengths
    return (lengths[begin : begin + _SENTENCES] - 1 for begin in range(0, len(lengths), _SENTENCES))


def _histogram(counts: Ints) -> list[tuple[float, float]]:
    """Return pairs of a length and the number of sentences of about that length."""
    if counts.sum() == 0:
        return []
    last = max(1, int(percentile(counts, _DRAWN)))
    width = math.ceil((last + 1) / _BINS)
    bins = np.bincount(np.minimum(np.arange(len(counts)), last) // width, weights=counts)
    return [(number * width + (width - 1) / 2, float(count)) for number, count in enumerate(bins.tolist())]


def _frequent(side: _Side) -> list[tuple[str, int, float]]:
    """Return the most frequent tokens, with their counts and shares."""
    counts = np.zeros(len(side.pieces), dtype=np.int64)
    for begin in range(0, len(side.sentences.values), _BLOCK):
        mapped = np.load(side.tokens, mmap_mode="r")  # mapped again, so that earlier pages leave memory
        counts += np.bincount(mapped[begin : begin + _BLOCK], minlength=len(side.pieces))
    counts[EOS] = 0
    total = max(1, int(counts.sum()))
    first = [number for number in np.argsort(-counts, kind="stable")[:_MOST_FREQUENT].tolist() if counts[number]]
    return [(visible_spaces(side.pieces[number]), int(counts[number]), counts[number] / total) for number in first]
