"""Comparison of systems by scores, by sentence length, by words and n-grams, and sentence by sentence.

Follows compare-mt (Neubig et al. 2019). ``nmt.compare`` and nmt-compare both call ``compared``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nmt.comparing.comparison import Comparison, LengthBand, Pair, Sentence, SystemTranslation
from nmt.comparing.counting import Tally, counted, decisive, frequency_bands, nearest_of, tallies
from nmt.comparing.words import Cutter, Words, unmatched_words
from nmt.config.choices import PairedTest
from nmt.config.comparing import CompareConfig
from nmt.config.composing.composition import from_keywords
from nmt.errors import DataError, UsageError
from nmt.plugins import load_plugins
from nmt.scoring import SacreScorer, Scorer, TextOptions
from nmt.scoring.learned import with_sources
from nmt.scoring.signs import signs
from nmt.scoring.systems import (
    Certainty,
    check_readable,
    chosen_scorers,
    figures,
    figures_by_label,
    length_labels,
    list_of_lines,
    lists_of_lines,
    named_references,
    sentence_scores,
)

__all__ = ["Comparison", "Pair", "Sentence", "SystemTranslation", "compare", "compared"]

NGRAMS = 20  # n-grams listed for each length and each system of a pair
OPTIONS = ("metrics", "paired", "resamples", "tokenize", "language", "lowercase", "count", "user_dir")

Lines = Sequence[str]


def compare(
    systems: Mapping[str, Lines],
    references: Sequence[Lines] | Lines,
    sources: Lines | None = None,
    *,
    train: Iterable[str] | None = None,
    **options: Any,
) -> Comparison:
    """Compare the translations of several systems line by line.

    ``systems`` maps names to lines; ``references`` is one list of lines or several; ``train`` is training text in the
    target language, in which word frequencies are counted.

    ``options`` are those of nmt-compare: ``metrics``, ``paired``, ``resamples``, ``tokenize``, ``language``, ``lowercase``,
    ``count``, ``user_dir``.
    """
    config = from_keywords(CompareConfig, options, "compare", OPTIONS)
    load_plugins(config.user_dir)
    if not isinstance(systems, Mapping):
        raise UsageError('compare needs a mapping from system names to lines: {"base": lines, "big": lines}')
    texts = {name: list_of_lines(lines, "compare") for name, lines in systems.items()}
    answers = lists_of_lines(references, "compare")
    check_texts(texts, answers, sources)
    scorers = scorers_of(config)
    check_readable(scorers, texts, named_references(answers))
    return compared(config, scorers, texts, answers, sources, train)


def scorers_of(config: CompareConfig) -> dict[str, Scorer]:
    """Return the scorers by metric."""
    return chosen_scorers(config.metrics, text_options(config))


def text_options(config: CompareConfig) -> TextOptions:
    return TextOptions(config.tokenize, config.lowercase, config.language)


def check_texts(systems: Mapping[str, Lines], references: Sequence[Any], sources: Lines | None) -> None:
    """Require two systems or more, a reference, and equal numbers of lines."""
    if len(systems) < 2:
        raise UsageError(f"compare needs at least two systems, not {len(systems)}; add another system")
    if not references:
        raise UsageError("compare needs at least one reference; add it")
    called = {f"system '{name}'": lines for name, lines in systems.items()}
    called |= named_references(references)
    called |= {} if sources is None else {"sources": sources}
    sizes = {name: len(lines) for name, lines in called.items()}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise DataError(
            f"the texts have different numbers of lines: {counts}; give texts of the same sentences, one per line"
        )
    if not all(sizes.values()):
        raise DataError("the texts are empty; give texts with at least one line")


def compared(
    config: CompareConfig,
    scorers: Mapping[str, Scorer],
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    sources: Lines | None = None,
    train: Iterable[str] | None = None,
    numbers: Sequence[int] | None = None,
) -> Comparison:
    """Return the comparison; ``numbers``: the line numbers in the files, from 1, if lines were skipped."""
    for metric, scorer in scorers.items():
        if not isinstance(scorer, SacreScorer):
            raise UsageError(f"the metric '{metric}' does not score single lines; remove it from the metrics")
    numbers = numbers or range(1, len(references[0]) + 1)
    cutter = Cutter.of(text_options(config))
    words = {name: list(map(cutter.words, lines)) for name, lines in systems.items()}
    answers = [list(map(cutter.words, lines)) for lines in references]
    known = counted(itertools.chain.from_iterable(answers) if train is None else map(cutter.words, train))
    every = with_sources(scorers, sources)
    of_lines = {
        name: {metric: sentence_scores(scorer, lines, references) for metric, scorer in every.items()}
        for name, lines in systems.items()
    }
    first = next(iter(scorers))
    ngrams = tallies(words, answers)
    pairs = tuple(
        _pair(
            names,
            {name: scores[first] for name, scores in of_lines.items()},
            scorers[first],
            ngrams,
            config.count,
            numbers,
        )
        for names in itertools.combinations(systems, 2)
    )
    shown = sorted({number for pair in pairs for number in (*pair.gains, *pair.losses)})
    rows = {number: row for row, number in enumerate(numbers)}
    return Comparison(
        systems=tuple(systems),
        metrics=tuple(scorers),
        lines=len(numbers),
        num_references=len(references),
        tokenize=config.tokenize,
        lowercase=config.lowercase,
        figures=figures(every, systems, references, Certainty(True, PairedTest(config.paired), config.resamples or 0)),
        signs={name: signs(lines, references, sources) for name, lines in systems.items()},
        lengths_of="reference" if sources is None else "source",
        lengths=tuple(_length_bands(scorers, systems, references, sources)),
        counted_in="references" if train is None else "training text",
        frequencies=tuple(frequency_bands(words, answers, known)),
        pairs=pairs,
        sentences=tuple(
            _sentence(number, rows[number], cutter, systems, references, sources, of_lines) for number in shown
        ),
    )


def _length_bands(
    scorers: Mapping[str, Scorer], systems: Mapping[str, Lines], references: Sequence[Lines], sources: Lines | None
) -> list[LengthBand]:
    labels = length_labels(references[0] if sources is None else sources)
    by_label = figures_by_label(scorers, systems, references, sources, labels, Certainty())
    return [
        LengthBand(
            label,
            labels.count(label),
            {name: {metric: figure.value for metric, figure in metrics.items()} for name, metrics in by_system.items()},
        )
        for label, by_system in by_label.items()
    ]


def _pair(
    names: tuple[str, str],
    scores: Mapping[str, Sequence[float]],
    scorer: Scorer,
    ngrams: Mapping[str, Tally],
    count: int,
    numbers: Sequence[int],
) -> Pair:
    first, second = names
    sign = 1 if scorer.higher_is_better else -1
    gains = [sign * (after - before) for before, after in zip(scores[first], scores[second])]
    by_gain = sorted(range(len(gains)), key=lambda row: -gains[row])
    by_loss = sorted(range(len(gains)), key=lambda row: gains[row])
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return Pair(
        first,
        second,
        better,
        worse,
        len(gains) - better - worse,
        tuple(numbers[row] for row in by_gain[: min(better, count)]),
        tuple(numbers[row] for row in by_loss[: min(worse, count)]),
        tuple(decisive(ngrams[first].right, ngrams[second].right, NGRAMS)),
        tuple(decisive(ngrams[first].wrong, ngrams[second].wrong, NGRAMS)),
    )


def _sentence(
    number: int,
    row: int,
    cutter: Cutter,
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    sources: Lines | None,
    scores: Mapping[str, Mapping[str, Sequence[float]]],
) -> Sentence:
    texts = [*(lines[row] for lines in references), *(lines[row] for lines in systems.values())]
    pieces = cutter.pieces(texts)
    answers: list[Words] = [words for words, _ in pieces[: len(references)]]
    cut = dict(zip(systems, pieces[len(references) :]))
    differing: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in systems}
    for first, second in itertools.combinations(systems, 2):
        differing[first][second], differing[second][first] = unmatched_words(cut[first][0], cut[second][0])
    translations = {
        name: SystemTranslation(
            text=lines[row],
            scores={metric: values[row] for metric, values in scores[name].items()},
            pieces=cut[name][1],
            wrong=unmatched_words(cut[name][0], answers[nearest_of(cut[name][0], answers)])[0],
            differing=differing[name],
        )
        for name, lines in systems.items()
    }
    source = None if sources is None else sources[row]
    return Sentence(number, source, tuple(lines[row] for lines in references), translations)
