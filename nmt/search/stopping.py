"""Which finished hypotheses are kept, and when the search of a sentence ends.

Legend: B sentences, b of them still in the batch, K beam.
"""

from __future__ import annotations

import math

import numpy as np

from nmt.data.hypothesis import Floats, Ints
from nmt.errors import DataError
from nmt.search.candidates import Candidates, Flags
from nmt.search.coverage import Coverage
from nmt.search.history import Ending
from nmt.search.ranking import Ranking, StopRule

_INFINITY = float("inf")


class Finished:
    """The finished hypotheses of each sentence, and what an unfinished one must still beat."""

    def __init__(self, ranking: Ranking, limits: Ints) -> None:
        """``limits`` [B]: the most tokens of each sentence's hypotheses."""
        self._ranking = ranking
        self._limits = limits.tolist()
        self._endings: list[list[Ending]] = [[] for _ in self._limits]
        self._to_beat = np.full(len(limits), -_INFINITY, dtype=np.float32)  # [B]
        with np.errstate(over="ignore"):  # an infinite one is smaller than any score
            self._longest_penalty = ranking.penalty(limits.astype(np.float32))  # [B]

    def add(
        self, found: Candidates, ends: Flags, sentences: Ints, length: int, beam: int, coverage: Coverage | None
    ) -> None:
        """Keep the candidates ``ends`` [b, n] of ``sentences`` [b], which are ``length`` tokens long, in their order.
        ``beam``: rows of a sentence in the step that they come from."""
        rows, columns = ends.nonzero()
        parents, totals = found.parents[rows, columns], found.totals[rows, columns]
        eos_scores = found.log_probabilities[rows, columns]
        penalty = self._ranking.penalty(float(length))
        covered = np.zeros_like(totals) if coverage is None else coverage.penalties(rows * beam + parents)
        events = zip(sentences[rows].tolist(), parents.tolist(), totals.tolist(), covered.tolist(), eos_scores.tolist())
        for sentence, parent, total, uncovered, eos_score in events:
            if math.isnan(total):
                raise DataError("the model's scores are not numbers (NaN): its checkpoint is damaged or diverged")
            finished = length < self._limits[sentence]
            ending = Ending(sentence, length, parent, total, total / penalty + uncovered, eos_score, finished)
            self._to_beat[sentence] = self._keep(self._endings[sentence], ending)

    def _keep(self, endings: list[Ending], ending: Ending) -> float:
        """File one more; returns the score that an unfinished hypothesis must now beat."""
        ranking = self._ranking
        if ranking.stop is StopRule.first:
            if len(endings) < ranking.enough:
                endings.append(ending)
            return _INFINITY if len(endings) == ranking.enough else -_INFINITY
        endings.append(ending)
        endings.sort(key=_by_score)
        del endings[ranking.nbest :]
        decided = ranking.stop is StopRule.bound and len(endings) == ranking.nbest
        return endings[-1].score if decided else -_INFINITY

    def settled(self, sentences: Ints, best: Floats) -> Flags:
        """[b] True where no continuation of hypotheses with log-probability ``best`` [b] or less can still matter."""
        # A log-probability only falls, the penalty only grows and coverage adds nothing: no score can become better.
        with np.errstate(invalid="ignore"):
            reachable = best / self._longest_penalty[sentences]
        settled: Flags = (best == -_INFINITY) | (reachable <= self._to_beat[sentences])
        return settled

    def found(self, sentences: Ints) -> list[bool]:
        """Whether these [b] have a finished hypothesis."""
        return [bool(self._endings[sentence]) for sentence in sentences.tolist()]

    def best(self, sentence: int) -> list[Ending]:
        endings = sorted(self._endings[sentence], key=_by_score)[: self._ranking.nbest]
        if not endings:
            raise DataError("the model gives every translation of a sentence the probability zero")
        return endings


def _by_score(ending: Ending) -> float:
    return -ending.score
