"""What a beam keeps of its hypotheses: back-pointers, those that are finished, and the source that they attended to.

Copying each hypothesis' tokens at each step costs time quadratic in the length; a step here only remembers, for each
slot of the beam, its token and the slot that it continues. They are followed once, when everything is finished.

Legend: B sentences, b of them still in the batch, K beam, N = b*K hypotheses, S source positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.vocabulary import EOS, Flags, Floats, Hypothesis, Ints
from nmt.errors import DataError, UsageError
from nmt.search.config import BeamConfig, StopRule
from nmt.search.decoding import Candidates

_INFINITY = float("inf")
_LEAST = 1e-10  # a piece that nothing attended to costs 23 nats, not infinitely many
_MANY = 10**9  # finished hypotheses: nobody waits for more


@dataclass(frozen=True)
class Ending:
    """One finished hypothesis, as a place in the history."""

    sentence: int
    length: int  # tokens, eos included
    parent: int  # the slot that the eos continues
    total: float
    score: float
    eos_score: float
    finished: bool


class History:
    """What each step of a beam chose."""

    def __init__(self, num_sentences: int, beam: int) -> None:
        self._shape = (num_sentences, beam)
        self._steps: list[tuple[Ints, Candidates, Floats | None]] = []

    def append(self, sentences: Ints, chosen: Candidates, attention: Floats | None) -> None:
        """``sentences`` [b]: those of the step; ``chosen`` [b, K]; attention [N, S] of their parents."""
        self._steps.append((sentences, chosen, attention))

    def hypotheses(
        self, endings: Sequence[Ending], source_lengths: Ints, *, ranked_by_model: bool = True
    ) -> list[Hypothesis]:
        """The hypotheses that end at ``endings``, in that order; ``ranked_by_model``: totals are log-probabilities."""
        sentence = np.array([ending.sentence for ending in endings], dtype=np.int64)
        slot = np.array([ending.parent for ending in endings], dtype=np.int64)
        length = np.array([ending.length for ending in endings], dtype=np.int64)
        tokens = np.full((len(endings), len(self._steps)), EOS, dtype=np.int64)
        scores = np.zeros(tokens.shape, dtype=np.float32)
        attended = list[Floats]()  # [endings, S] of each step, the last one first
        for t, (there, chosen, attention) in reversed(list(enumerate(self._steps))):
            before = np.flatnonzero(length - 1 > t)  # at their eos, hypotheses stand in their parent's slot already
            at = sentence[before], slot[before]
            tokens[before, t] = self._spread(there, chosen.tokens)[at]
            scores[before, t] = self._spread(there, chosen.log_probabilities)[at]
            slot[before] = self._spread(there, chosen.parents)[at]
            if attention is not None:
                attended.append(self._spread(there, attention.reshape(*chosen.tokens.shape, -1))[sentence, slot])
        scores[np.arange(len(endings)), length - 1] = [ending.eos_score for ending in endings]
        maps = np.stack(attended[::-1], 1) if attended else None  # [endings, T, S]
        widths = source_lengths.tolist()
        return [
            Hypothesis(
                tokens=tokens[row, : ending.length].copy(),
                score=ending.score,
                log_probability=ending.total if ranked_by_model else float(scores[row, : ending.length].sum()),
                token_scores=scores[row, : ending.length].copy(),
                attention=None if maps is None else maps[row, : ending.length, : widths[ending.sentence]].copy(),
                finished=ending.finished,
            )
            for row, ending in enumerate(endings)
        ]

    def _spread(self, sentences: Ints, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[b, K, ...] of the sentences still there -> [B, K, ...] of all."""
        if len(sentences) == self._shape[0]:  # in their order: nobody has left
            return values
        full = np.zeros((*self._shape, *values.shape[2:]), dtype=values.dtype)
        full[sentences] = values
        return full


class Coverage:
    """How much of the source a hypothesis has attended to: Wu et al. 2016, arXiv:1609.08144, equation 14.

    cp(X; Y) = weight * sum over source pieces of log(min(sum over target pieces of the attention, 1)).
    """

    def __init__(self, weight: float, source_lengths: Ints, beam: int) -> None:
        self._weight = np.float32(weight)
        self._real = np.arange(source_lengths.max()) < source_lengths.repeat(beam)[:, None]  # [N, S]
        self._attended = np.zeros(self._real.shape, dtype=np.float32)  # [N, S] summed over the positions so far

    def add(self, attention: Floats | None) -> None:
        """The attention [N, S] of one more position."""
        if attention is None:
            raise UsageError("--coverage-penalty needs a model with attention; leave it out for this one")
        self._attended = self._attended + attention

    def follow(self, rows: Ints) -> None:
        """The hypotheses of the next position are continuations of these rows."""
        self._attended, self._real = self._attended[rows], self._real[rows]

    def penalties(self, rows: Ints) -> Floats:
        """cp of these rows, as if they ended here; never above zero."""
        logarithms = np.log(self._attended[rows].clip(_LEAST, 1.0))
        found: Floats = self._weight * (logarithms * self._real[rows]).sum(1)
        return found


class Finished:
    """The finished hypotheses of each sentence, and what an unfinished one must still beat."""

    def __init__(self, config: BeamConfig, width: int, nbest: int, limits: Ints, shrinks: Flags) -> None:
        """``width``: hypotheses that are searched for side by side; ``limits`` [B]: the most tokens of each; ``shrinks``
        [B]: where each one that is finished takes a place."""
        self._config = config
        self._width, self._shrinks = width, shrinks
        self._enough = max(nbest, math.floor(min(width * config.patience, _MANY) + 0.5))  # that end it by ``first``
        self._nbest = nbest
        self._limits = limits.tolist()
        self._endings: list[list[Ending]] = [[] for _ in self._limits]
        self._to_beat = np.full(len(limits), -_INFINITY, dtype=np.float32)  # [B]
        self._taken = np.zeros(len(limits), dtype=np.int64)  # [B] places
        with np.errstate(over="ignore"):  # an infinite one is smaller than any score
            self._longest_penalty = config.length_penalty(limits.astype(np.float32), config.lenpen)  # [B]

    def without_place(self, sentences: Ints) -> Flags:
        """[b, 2k] the candidates that neither end nor go on, since finished hypotheses have their places."""
        rank: Ints = np.arange(2 * self._width)
        return (rank >= (self._width - self._taken[sentences])[:, None]) & self._shrinks[sentences, None]

    def add(
        self, found: Candidates, ends: Flags, sentences: Ints, length: int, beam: int, coverage: Coverage | None
    ) -> None:
        """Keep the candidates ``ends`` [b, n] of ``sentences`` [b], which are ``length`` tokens long, in their order.
        ``beam``: rows of a sentence in the step that they come from."""
        rows, columns = ends.nonzero()
        self._taken[sentences] += ends.sum(1) * self._shrinks[sentences]
        totals, parents, _, eos_scores = found.each(lambda part: part[rows, columns])
        penalty = self._config.length_penalty(float(length), self._config.lenpen)
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
        if self._config.stop is StopRule.first:
            if len(endings) < self._enough:
                endings.append(ending)
            return _INFINITY if len(endings) == self._enough else -_INFINITY
        endings.append(ending)
        endings.sort(key=lambda one: -one.score)
        del endings[self._nbest :]
        decided = self._config.stop is StopRule.bound and len(endings) == self._nbest
        return endings[-1].score if decided else -_INFINITY

    def settled(self, sentences: Ints, best: Floats) -> Flags:
        """[b] True where no continuation of hypotheses with log-probability ``best`` [b] or less can still matter."""
        # A log-probability only falls, the penalty only grows and coverage adds nothing: no score can become better.
        with np.errstate(invalid="ignore"):
            reachable = best / self._longest_penalty[sentences]
        settled: Flags = (best == -_INFINITY) | (reachable <= self._to_beat[sentences])
        return settled

    def found(self, sentence: int) -> bool:
        """Whether the sentence has a finished hypothesis."""
        return bool(self._endings[sentence])

    def best(self, sentence: int) -> list[Ending]:
        endings = sorted(self._endings[sentence], key=lambda one: -one.score)[: self._nbest]
        if not endings:
            raise DataError("the model gives every translation of a sentence the probability zero")
        return endings
