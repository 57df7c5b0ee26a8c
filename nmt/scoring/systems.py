"""Score several systems on the same references: scores, their confidence, and the scores of parts of the lines.

Intervals and tests are sacreBLEU's own, with its seed (12345, or that of SACREBLEU_SEED).
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from nmt.config.choices import PairedTest
from nmt.errors import DataError, UsageError
from nmt.scoring import SacreScorer, Score, Scorer, TextOptions, check_lines, check_tokenizer, scorers
from nmt.scoring.learned import Learned, with_sources
from nmt.scoring.unspaced import spaced

RESAMPLES = 1000  # sacreBLEU's default
LIKELY = 0.05  # p-value from which a difference is not significant
BANDS = (10, 20, 30, 40, 50, 60)  # first number of words of each band but the first

Lines = Sequence[str]


@dataclass(frozen=True)
class Figure:
    """A score of one system."""

    score: Score
    mean: float | None = None  # over resampled texts
    interval: float | None = None  # half the width of the 95 % confidence interval
    p_value: float | None = None  # of the difference to the first system

    def __repr__(self) -> str:
        interval = "" if self.interval is None else f" ± {self.interval:.2f}"
        chance = "" if self.p_value is None else f", p = {self.p_value:.4f}"
        return f"<Figure {self.score.name} {self.value:.2f}{interval}{chance}>"

    @property
    def value(self) -> float:
        return self.score.value


@dataclass(frozen=True)
class Certainty:
    """Options for confidence intervals and for tests between systems."""

    intervals: bool = False
    test: PairedTest = PairedTest.none
    resamples: int = 0  # 0: sacreBLEU's defaults, 1,000 resamples and 10,000 trials of the randomization


def chosen_scorers(metrics: Sequence[str], text: TextOptions) -> dict[str, Scorer]:
    """Build scorers by name that cache the statistics of lines."""
    if not metrics:
        raise UsageError(f"name a metric: --metrics {','.join(scorers.names())}")
    check_tokenizer(text.tokenize)  # even if no chosen metric uses it
    return {name: caching(scorers.build(scorers.config_class(name)(), text)) for name in metrics}


def caching(scorer: Scorer) -> Scorer:
    """Return the same scorer with cached statistics: a line is scored alone, in the text, in parts and in resampled texts.

    Neural metrics are returned unchanged, since they have a separate cache.
    """
    if not isinstance(scorer, SacreScorer) or isinstance(scorer, Learned):
        return scorer
    other = copy.copy(scorer)
    other.metric = copy.copy(scorer.metric)
    other.metric._extract_corpus_statistics = _CachedStatistics(other.metric)
    return other


class _CachedStatistics:
    """sacreBLEU's statistics of lines, computed once for each pair of a hypothesis and its references."""

    def __init__(self, metric: Any) -> None:
        self._metric, self._count = metric, metric._extract_corpus_statistics
        self._known: dict[tuple[str, tuple[str, ...]], Any] = {}

    def __call__(self, hypotheses: Lines, references: Sequence[Lines]) -> list[Any]:
        rows = list(zip(hypotheses, zip(*references)))
        new = [row for row in dict.fromkeys(rows) if row not in self._known]
        if new:
            answers = [list(lines) for lines in zip(*(several for _, several in new))]
            self._known.update(zip(new, self._count([line for line, _ in new], answers)))
        self._metric.num_refs = len(references)  # for the signature; sacreBLEU sets it only when it counts lines
        return [self._known[row] for row in rows]


def check_readable(
    chosen: Mapping[str, Scorer],
    systems: Mapping[str, Lines],
    references: Mapping[str, Lines],
    numbers: Sequence[int] | None = None,
) -> None:
    """Refuse lines that a metric cannot read. The error names the file and the line number: from ``numbers``, or from 1."""
    for scorer in chosen.values():
        if isinstance(scorer, SacreScorer):
            _read_all(scorer.read_hypothesis, systems, numbers)
            _read_all(scorer.read_reference, references, numbers)


def _read_all(read: Callable[[str], object] | None, texts: Mapping[str, Lines], numbers: Sequence[int] | None) -> None:
    if read is None:
        return
    for name, lines in texts.items():
        for place, line in enumerate(lines):
            try:
                read(line)
            except DataError as error:
                number = place + 1 if numbers is None else numbers[place]
                raise DataError(f"{name}:{number}: {error}") from None


def lists_of_lines(references: Sequence[Lines] | Lines, function: str) -> list[list[str]]:
    """Return references as lists of lines. A single list is also accepted."""
    if references and all(isinstance(lines, str) for lines in references):
        return [list_of_lines(cast(Lines, references), function)]
    return [list_of_lines(lines, function) for lines in references]


def list_of_lines(lines: Lines, function: str) -> list[str]:
    """Return lines as a list. A plain string, also a sequence of strings, is refused."""
    if isinstance(lines, str):
        raise UsageError(f"{function} takes lists of lines; put a single one in brackets: [line]")
    return list(lines)


def named_references(references: Sequence[Lines]) -> dict[str, Lines]:
    """Return references under the names that messages use."""
    return {f"reference {number}": lines for number, lines in enumerate(references, start=1)}


def figures(
    scorers: Mapping[str, Scorer], systems: Mapping[str, Lines], references: Sequence[Lines], certainty: Certainty
) -> dict[str, dict[str, Figure]]:
    """Return figures by system and metric."""
    for hypotheses in systems.values():
        check_lines(hypotheses, references)
    if not certainty.intervals and certainty.test is PairedTest.none:
        return {
            name: {metric: Figure(scorer(lines, references)) for metric, scorer in scorers.items()}
            for name, lines in systems.items()
        }
    seed = os.environ.get("SACREBLEU_SEED", "none")
    if seed.lower() != "none" and not re.fullmatch("[0-9]+", seed):
        raise UsageError(f"SACREBLEU_SEED={seed} is invalid; set it to a whole number, or to none for a random seed")
    known = {metric: _resampled(metric, scorer) for metric, scorer in scorers.items()}
    if certainty.test is PairedTest.none:
        return {
            name: {metric: _with_interval(scorer, lines, references, certainty) for metric, scorer in known.items()}
            for name, lines in systems.items()
        }
    return _tested(known, systems, references, certainty)


def _resampled(metric: str, scorer: Scorer) -> SacreScorer:
    if not isinstance(scorer, SacreScorer):
        raise UsageError(
            f"the metric '{metric}' has no scores of single lines, which intervals and tests need; remove it, or omit "
            f"--confidence and --paired"
        )
    return scorer


def _with_interval(scorer: SacreScorer, hypotheses: Lines, references: Sequence[Lines], options: Certainty) -> Figure:
    import numpy as np
    from sacrebleu.significance import _bootstrap_resample, estimate_ci

    trials = options.test is PairedTest.randomization  # its trials are not resamples
    count = RESAMPLES if trials else options.resamples or RESAMPLES
    plain = scorer(hypotheses, references)
    metric = scorer.metric
    counted = metric._extract_corpus_statistics(list(hypotheses), [list(lines) for lines in references])
    metric.seed, resampled_scores = _bootstrap_resample(counted, metric, count)
    # corpus_score(n_bootstrap=...) fails if some of the scores are Python's numbers and others are numpy's.
    mean, interval = estimate_ci(np.array([float(resampled.score) for resampled in resampled_scores]))
    metric.n_bootstrap = count
    signature = str(metric.get_signature())
    metric.n_bootstrap = metric.seed = None  # later scores are not resampled
    return Figure(replace(plain, signature=signature), float(mean), float(interval))


def _tested(
    scorers: Mapping[str, SacreScorer],
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    options: Certainty,
) -> dict[str, dict[str, Figure]]:
    from sacrebleu.significance import PairedTest as Test

    results = {name: dict[str, Figure]() for name in systems}
    for metric, scorer in scorers.items():
        # One metric at a time: sacreBLEU identifies metrics by the names of their scores, which may be equal.
        signatures, results_by_name = Test(
            [(name, list(lines)) for name, lines in systems.items()],
            {metric: scorer.metric},
            [list(lines) for lines in references],
            test_type={PairedTest.bootstrap: "bs", PairedTest.randomization: "ar"}[options.test],
            n_samples=options.resamples,
        )()
        ((called, signature),) = signatures.items()
        trials_only = options.intervals and options.test is PairedTest.randomization
        if trials_only:
            signature.update("bs", RESAMPLES)
        for result, (name, lines) in zip(results_by_name[called], systems.items()):
            test_result: Any = result
            figure = (
                _with_interval(scorer, lines, references, options) if trials_only else Figure(scorer(lines, references))
            )
            if options.intervals and not trials_only:  # the test drew the same texts
                figure = replace(figure, mean=float(test_result.mean), interval=float(test_result.ci))
            score = replace(figure.score, signature=str(signature))
            p_value = None if test_result.p_value is None else float(test_result.p_value)
            if p_value is not None and score.value == next(iter(results.values()))[metric].score.value:
                p_value = 1.0  # sacreBLEU calls the difference of a system to itself significant
            results[name][metric] = replace(figure, score=score, p_value=p_value)
    return results


def plain_figures(figures: Mapping[str, Figure]) -> list[dict[str, Any]]:
    """Return figures for JSON, one dict for each metric."""
    return [
        {
            "metric": metric,
            "name": figure.score.name,
            "score": figure.score.value,
            "higher_is_better": figure.score.higher_is_better,
            "signature": figure.score.signature,
            "detail": figure.score.detail,
            **({"mean": figure.mean, "interval": figure.interval} if figure.interval is not None else {}),
            **({"p_value": figure.p_value} if figure.p_value is not None else {}),
        }
        for metric, figure in figures.items()
    ]


def sentence_scores(scorer: Scorer, hypotheses: Lines, references: Sequence[Lines]) -> list[float]:
    """Return the score of each line."""
    if isinstance(scorer, SacreScorer):
        return scorer.sentences(hypotheses, references)
    return [
        scorer([line], [[answer] for answer in answers]).value for line, answers in zip(hypotheses, zip(*references))
    ]


def length_labels(texts: Iterable[str]) -> list[str]:
    """Return the length band of each text, in words; in scripts without spaces each character is a word."""
    return [_band(len(spaced(text).split())) for text in texts]


def _band(words: int) -> str:
    begin = max((band for band in BANDS if band <= words), default=0)
    end = min((band for band in BANDS if band > words), default=None)
    return f"{begin} words and more" if end is None else f"{begin}-{end - 1} words"


def _sorted_labels(labels: Iterable[str]) -> list[str]:
    """Return each label once: bands of lengths by length, others in order of appearance."""
    distinct = list(dict.fromkeys(labels))
    bands = [_band(words) for words in (0, *BANDS)]
    return sorted(distinct, key=bands.index) if set(distinct) <= set(bands) else distinct


def figures_by_label(
    scorers: Mapping[str, Scorer],
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    sources: Lines | None,
    labels: Sequence[str],
    certainty: Certainty,
) -> dict[str, dict[str, dict[str, Figure]]]:
    """Return the figures of the lines with each label, by label, system and metric."""

    def selected(lines: Lines, label: str) -> list[str]:
        return [line for line, own in zip(lines, labels) if own == label]

    return {
        label: figures(
            with_sources(scorers, sources and selected(sources, label)),
            {name: selected(lines, label) for name, lines in systems.items()},
            [selected(lines, label) for lines in references],
            certainty,
        )
        for label in _sorted_labels(labels)
    }
