"""Several systems against the same references: their scores, how far these can be trusted, and those of parts of the lines.

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
from nmt.scoring.learned import Learned
from nmt.scoring.unspaced import spaced

RESAMPLES = 1000  # as many as sacreBLEU draws
LIKELY = 0.05  # from this p-value on a difference may well be chance
BANDS = (10, 20, 30, 40, 50, 60)  # words, where one begins

Lines = Sequence[str]


@dataclass(frozen=True)
class Figure:
    """A score of one system."""

    score: Score
    mean: float | None = None  # of resampled texts
    interval: float | None = None  # half of what 95 of 100 of these lie in
    p_value: float | None = None  # of a difference to the first system that chance alone would make as large

    @property
    def value(self) -> float:
        return self.score.value


@dataclass(frozen=True)
class Certainty:
    """What is asked for beside scores."""

    intervals: bool = False
    test: PairedTest = PairedTest.none
    resamples: int = 0  # 0: as many as sacreBLEU takes, 1,000, and 10,000 trials of the randomisation

    @property
    def is_asked(self) -> bool:
        return self.intervals or self.test is not PairedTest.none


def chosen_scorers(metrics: Sequence[str], text: TextOptions) -> dict[str, Scorer]:
    """By name, each of which counts a line once (``remembering``)."""
    if not metrics:
        raise UsageError(f"name a metric: --metrics {','.join(scorers.names())}")
    check_tokenizer(text.tokenize)  # also where no chosen metric would look at it
    return {name: remembering(scorers.build(scorers.config_class(name)(), text)) for name in metrics}


def remembering(scorer: Scorer) -> Scorer:
    """The same scorer, which counts a line once, however often it is scored: alone, in the text, in a part, in resampled
    texts. Networks remember by themselves."""
    if not isinstance(scorer, SacreScorer) or isinstance(scorer, Learned):
        return scorer
    other = copy.copy(scorer)
    other.metric = copy.copy(scorer.metric)
    other.metric._extract_corpus_statistics = _Once(other.metric)
    return other


class _Once:
    """sacreBLEU's statistics of lines; each pair of a hypothesis and its references is counted when it is first seen."""

    def __init__(self, metric: Any) -> None:
        self._metric, self._count = metric, metric._extract_corpus_statistics
        self._known: dict[tuple[str, tuple[str, ...]], Any] = {}

    def __call__(self, hypotheses: Lines, references: Sequence[Lines]) -> list[Any]:
        rows = list(zip(hypotheses, zip(*references)))
        new = [row for row in dict.fromkeys(rows) if row not in self._known]
        if new:
            answers = [list(lines) for lines in zip(*(several for _, several in new))]
            self._known.update(zip(new, self._count([line for line, _ in new], answers)))
        self._metric.num_refs = len(references)  # of the signature; counting sets it, and known lines are not counted
        return [self._known[row] for row in rows]


def check_form(
    chosen: Mapping[str, Scorer],
    systems: Mapping[str, Lines],
    references: Mapping[str, Lines],
    numbers: Sequence[int] | None = None,
) -> None:
    """A line that a metric cannot read is named by its text and its number there: that of ``numbers``, or counted from 1."""
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
    """References as lists of lines, of which one may be given as it is."""
    if references and all(isinstance(one, str) for one in references):
        return [list_of_lines(cast(Lines, references), function)]
    return [list_of_lines(one, function) for one in references]


def list_of_lines(lines: Lines, function: str) -> list[str]:
    """A string is a sequence of strings, too, and hardly meant to be one."""
    if isinstance(lines, str):
        raise UsageError(f"{function} takes lists of lines; put a single one in brackets: [line]")
    return list(lines)


def named_references(references: Sequence[Lines]) -> dict[str, Lines]:
    """As messages call them."""
    return {f"reference {number}": lines for number, lines in enumerate(references, start=1)}


def figures(
    scorers: Mapping[str, Scorer], systems: Mapping[str, Lines], references: Sequence[Lines], certainty: Certainty
) -> dict[str, dict[str, Figure]]:
    """By system, and by metric."""
    for hypotheses in systems.values():
        check_lines(hypotheses, references)
    if not certainty.is_asked:
        return {
            name: {metric: Figure(scorer(lines, references)) for metric, scorer in scorers.items()}
            for name, lines in systems.items()
        }
    _check_seed()
    known = {metric: _resampled(metric, scorer) for metric, scorer in scorers.items()}
    if certainty.test is PairedTest.none:
        return {
            name: {metric: _with_interval(scorer, lines, references, certainty) for metric, scorer in known.items()}
            for name, lines in systems.items()
        }
    return _tested(known, systems, references, certainty)


def _check_seed() -> None:
    seed = os.environ.get("SACREBLEU_SEED", "none")
    if seed.lower() != "none" and not re.fullmatch("[0-9]+", seed):
        raise UsageError(
            f"SACREBLEU_SEED={seed} is no seed; set it to a whole number, or to none for another one each time"
        )


def _resampled(metric: str, scorer: Scorer) -> SacreScorer:
    if not isinstance(scorer, SacreScorer):
        raise UsageError(
            f"the metric '{metric}' says nothing of single lines, which intervals and tests are made of; leave it out, or "
            f"--confidence and --paired"
        )
    return scorer


def _with_interval(scorer: SacreScorer, hypotheses: Lines, references: Sequence[Lines], options: Certainty) -> Figure:
    import numpy as np
    from sacrebleu.significance import _bootstrap_resample, estimate_ci

    trials = options.test is PairedTest.randomization  # which are no resamples
    count = RESAMPLES if trials else options.resamples or RESAMPLES
    plain = scorer(hypotheses, references)
    metric = scorer.metric
    counted = metric._extract_corpus_statistics(list(hypotheses), [list(lines) for lines in references])
    metric.seed, drawn = _bootstrap_resample(counted, metric, count)
    # corpus_score(n_bootstrap=...) fails where the score of one resampled text is Python's number, and of others numpy's.
    mean, interval = estimate_ci(np.array([float(one.score) for one in drawn]))
    metric.n_bootstrap = count
    signature = str(metric.get_signature())
    metric.n_bootstrap = metric.seed = None  # what follows is not resampled
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
        # Alone: sacreBLEU calls metrics by the names of their scores, which two of them may share.
        signatures, found = Test(
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
        for result, (name, lines) in zip(found[called], systems.items()):
            drawn: Any = result
            figure = (
                _with_interval(scorer, lines, references, options) if trials_only else Figure(scorer(lines, references))
            )
            if options.intervals and not trials_only:  # the test has drawn the same texts
                figure = replace(figure, mean=float(drawn.mean), interval=float(drawn.ci))
            score = replace(figure.score, signature=str(signature))
            p_value = None if drawn.p_value is None else float(drawn.p_value)
            if p_value is not None and score.value == next(iter(results.values()))[metric].score.value:
                p_value = 1.0  # sacreBLEU calls the difference of a system to itself significant
            results[name][metric] = replace(figure, score=score, p_value=p_value)
    return results


def plain_figures(found: Mapping[str, Figure]) -> list[dict[str, Any]]:
    """As JSON has them, by metric."""
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
        for metric, figure in found.items()
    ]


def sentence_scores(scorer: Scorer, hypotheses: Lines, references: Sequence[Lines]) -> list[float]:
    """Of each line alone."""
    if isinstance(scorer, SacreScorer):
        return scorer.sentences(hypotheses, references)
    return [
        scorer([line], [[answer] for answer in answers]).value for line, answers in zip(hypotheses, zip(*references))
    ]


def length_labels(texts: Iterable[str]) -> list[str]:
    """The band of each text by its words; each letter of a writing without spaces is one."""
    return [_band(len(spaced(text).split())) for text in texts]


def _band(words: int) -> str:
    begin = max((band for band in BANDS if band <= words), default=0)
    end = min((band for band in BANDS if band > words), default=None)
    return f"{begin} words and more" if end is None else f"{begin}-{end - 1} words"


def in_order(labels: Iterable[str]) -> list[str]:
    """Each label once: bands of lengths by length, others as they come."""
    found = list(dict.fromkeys(labels))
    bands = [_band(words) for words in (0, *BANDS)]
    return sorted(found, key=bands.index) if set(found) <= set(bands) else found


def part(labels: Sequence[str], label: str, lines: Lines) -> list[str]:
    """The lines that have a label."""
    return [line for line, its in zip(lines, labels) if its == label]
