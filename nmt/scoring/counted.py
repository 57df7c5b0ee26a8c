"""Our own metrics as subclasses of sacreBLEU's ``Metric``: statistics of each line, and a score from their sums.

sacreBLEU's resampling and its tests between systems then treat them like BLEU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from nmt import __version__
from nmt.errors import UsageError

Statistics = Callable[[str, Sequence[str]], list[float]]  # of a hypothesis and its references
Summary = Callable[[Sequence[float]], tuple[float, str]]  # sums of statistics -> score, and details for the user


def share(sums: Sequence[float]) -> tuple[float, str]:
    """Return the first sum as a percentage of the second."""
    return per_cent(*sums), ""


def per_cent(count: float, total: float) -> float:
    return 100.0 * count / total if total else 0.0


def counted(
    name: str,
    statistics: Statistics,
    signature: dict[str, str],
    prepare: Callable[[str], str] = str,
    summary: Summary = share,
) -> Any:
    """Return a metric whose score is the ``summary`` of ``statistics`` summed over the lines.

    ``signature``: its own entries in sacreBLEU's signature; ``prepare``: applied to each line first.
    """
    return metric_class()(name, statistics, signature, prepare, summary)


@functools.cache
def metric_class() -> Any:
    """Define the class at its first use: importing sacreBLEU is slow."""
    from sacrebleu.metrics.base import Metric, Score, Signature

    class OwnSignature(Signature):
        """sacreBLEU's entries, those of the metric, and the version of nmt."""

        def __init__(self, args: dict[str, Any]) -> None:
            super().__init__(args)
            for name, value in args["signature"].items():
                self.update(name, value)
            self.update("version", f"nmt-{__version__}")

    class Counted(Metric):
        _SIGNATURE_TYPE = OwnSignature

        def __init__(
            self,
            name: str,
            statistics: Statistics,
            signature: dict[str, str],
            prepare: Callable[[str], str],
            summary: Summary,
        ) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.name, self.signature = name, signature
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
    """Return the reference of a metric that takes exactly one."""
    if len(references) != 1:
        raise UsageError(f"the metric '{metric}' takes one reference, not {len(references)}; give only one")
    return references[0]


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for word in first:
        before = 0
        for place, candidate in enumerate(second, start=1):
            above = row[place]
            row[place] = before + 1 if word == candidate else max(above, row[place - 1])
            before = above
    return row[-1]


def rouge_l(hypothesis: str, references: Sequence[str]) -> list[float]:
    """Return the F1 of the longest common subsequence of words, for the best reference; and 1, for the mean over lines."""
    words, best = hypothesis.split(), 0.0
    for reference in references:
        reference_words = reference.split()
        common = longest_common(words, reference_words)
        best = max(best, 2.0 * common / max(1, len(words) + len(reference_words)))
    return [best, 1.0]
