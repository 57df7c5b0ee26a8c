"""Metrics of our own as sacreBLEU's class of metrics wants them: figures of each line, and a score from their sums.

So its resampling and its tests between systems know them as they know BLEU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from nmt import __version__
from nmt.errors import UsageError

Statistics = Callable[[str, Sequence[str]], list[float]]  # of a hypothesis and its references
Summary = Callable[[Sequence[float]], tuple[float, str]]  # of their sums: the score, and what is told beside it


def share(sums: Sequence[float]) -> tuple[float, str]:
    """In per cent, of the first figure in the second."""
    return per_cent(*sums), ""


def per_cent(found: float, of: float) -> float:
    return 100.0 * found / of if of else 0.0


def counted(
    name: str,
    statistics: Statistics,
    said: dict[str, str],
    prepare: Callable[[str], str] = str,
    summary: Summary = share,
) -> Any:
    """The metric whose score is a ``summary`` of figures that are summed up over the lines.
    ``said``: of its signature; ``prepare``: what is done with each text first."""
    return metric_class()(name, statistics, said, prepare, summary)


@functools.cache
def metric_class() -> Any:
    """Made when it is needed, since sacreBLEU takes its time."""
    from sacrebleu.metrics.base import Metric, Score, Signature

    class Said(Signature):
        """What a metric says of itself stands between what sacreBLEU says of each, and our version."""

        def __init__(self, args: dict[str, Any]) -> None:
            super().__init__(args)
            for name, value in args["said"].items():
                self.update(name, value)
            self.update("version", f"nmt-{__version__}")

    class Counted(Metric):
        _SIGNATURE_TYPE = Said

        def __init__(
            self,
            name: str,
            statistics: Statistics,
            said: dict[str, str],
            prepare: Callable[[str], str],
            summary: Summary,
        ) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.name, self.said = name, said
            self._statistics, self._prepare, self._summary = statistics, prepare, summary

        def _aggregate_and_compute(self, stats: list[list[Any]]) -> Score:
            return self._compute_score_from_stats([sum(column) for column in zip(*stats)])

        def _compute_score_from_stats(self, stats: Any) -> Score:
            value, detail = self._summary([float(figure) for figure in stats])
            score = Score(self.name, value)
            score._verbose = detail
            return score

        def _preprocess_segment(self, sent: str) -> str:
            return self._prepare(sent)

        def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
            return {"references": list(refs)}

        def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
            return self._statistics(hypothesis, ref_kwargs["references"])

    return Counted


def only(references: Sequence[str], metric: str) -> str:
    """The reference, of a metric that has no use for a second one."""
    if len(references) != 1:
        raise UsageError(
            f"the metric '{metric}' takes one reference, and here are {len(references)}; leave the others out"
        )
    return references[0]


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of their longest common subsequence."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for place, candidate in enumerate(other, start=1):
            above = row[place]
            row[place] = before + 1 if word == candidate else max(above, row[place - 1])
            before = above
    return row[-1]


def rouge_l(hypothesis: str, references: Sequence[str]) -> list[float]:
    """F1 of the longest common subsequence of words, with the best of the references; and one, to take the mean."""
    words, best = hypothesis.split(), 0.0
    for reference in references:
        wanted = reference.split()
        common = longest_common(words, wanted)
        best = max(best, 2.0 * common / max(1, len(words) + len(wanted)))
    return [best, 1.0]


def exact(hypothesis: str, references: Sequence[str]) -> list[float]:
    return [float(hypothesis in references), 1.0]
