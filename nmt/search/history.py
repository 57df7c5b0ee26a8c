"""What a beam stores (back-pointers, finished hypotheses, attention to the source), and when a sentence's search ends.

Copying the tokens of each hypothesis at each step would cost time quadratic in the length. Instead, a step stores for each
slot of the beam its token and the slot that it continues. The tokens are collected once, at the end of the search.

A hypothesis is finished if it ends in eos, also if the length limit forced the eos (``Ending.within_limit`` is False).
The stop rule decides in ``Finished.settled``.

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
_MANY = 10**9  # finished hypotheses: no limit


@dataclass(frozen=True)
class Ending:
    """A finished hypothesis, as a position in the history."""

    sentence: int
    length: int  # tokens, eos included
    parent: int  # the slot that the eos continues
    total: float
    score: float
    eos_score: float
    within_limit: bool  # False: the length limit forced the eos


class History:
    """The choices of each step of a beam."""

    def __init__(self, num_sentences: int) -> None:
        self._count = num_sentences
        self._steps: list[tuple[Ints, Candidates, Floats | None]] = []

    def append(self, sentences: Ints, chosen: Candidates, attention: Floats | None) -> None:
        """Add a step of ``sentences`` [b]: ``chosen`` [b, K], and the attention [N, S] of their parents."""
        self._steps.append((sentences, chosen, attention))

    def hypotheses(
        self, endings: Sequence[Ending], source_lengths: Ints, *, ranked_by_model: bool = True
    ) -> list[Hypothesis]:
        """Return the hypotheses that end at ``endings``, in that order. ``ranked_by_model``: totals are
        log-probabilities."""
        sentence = np.array([ending.sentence for ending in endings], dtype=np.int64)
        slot = np.array([ending.parent for ending in endings], dtype=np.int64)
        length = np.array([ending.length for ending in endings], dtype=np.int64)
        tokens = np.full((len(endings), len(self._steps)), EOS, dtype=np.int64)
        scores = np.zeros(tokens.shape, dtype=np.float32)
        attended, count = list[Floats](), self._count  # [endings, S] of each step, the last one first
        for t, (there, chosen, attention) in reversed(list(enumerate(self._steps))):
            before = np.flatnonzero(length - 1 > t)  # at its eos, a hypothesis is already in the slot of its parent
            at = sentence[before], slot[before]
            tokens[before, t] = spread(chosen.tokens, there, count)[at]
            scores[before, t] = spread(chosen.log_probabilities, there, count)[at]
            slot[before] = spread(chosen.parents, there, count)[at]
            if attention is not None:
                attended.append(spread(attention.reshape(*chosen.tokens.shape, -1), there, count)[sentence, slot])
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
                finished=ending.within_limit,
            )
            for row, ending in enumerate(endings)
        ]


def spread(values: npt.NDArray[Any], sentences: Ints, count: int) -> npt.NDArray[Any]:
    """Values [b, ...] of the ``sentences`` still in the batch -> [B, ...] of all ``count`` sentences; those of others are
    0."""
    if len(sentences) == count:  # they are in order
        return values
    full = np.zeros((count, *values.shape[1:]), dtype=values.dtype)
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
        """Add the attention [N, S] of a target position."""
        if attention is None:
            raise UsageError("--coverage-penalty needs attention, which the model does not have; omit it")
        self._attended = self._attended + attention

    def follow(self, rows: Ints) -> None:
        """Continue with the hypotheses of these rows."""
        self._attended, self._real = self._attended[rows], self._real[rows]

    def penalties(self, rows: Ints) -> Floats:
        """Return cp of these rows, if they end here; never above zero."""
        logarithms = np.log(self._attended[rows].clip(_LEAST, 1.0))
        penalties: Floats = self._weight * (logarithms * self._real[rows]).sum(1)
        return penalties


class Finished:
    """The finished hypotheses of each sentence. Decides by the stop rule whether its search ends."""

    def __init__(
        self, config: BeamConfig, width: int, nbest: int, limits: Ints, shrinks: Flags, started: int = 0
    ) -> None:
        """``width``: slots of the beam. ``limits`` [B]: maximum number of tokens. ``shrinks`` [B]: whether a finished
        hypothesis takes a slot of its sentence. ``started``: tokens before the translation, which the length penalty counts
        as transformers and CTranslate2 do."""
        self._config = config
        self._width, self._shrinks, self._started = width, shrinks, started
        self._needed_by_first = max(nbest, math.floor(min(width * config.patience, _MANY) + 0.5))
        self._nbest = nbest
        self._kept = max(nbest, width) if config.stop is StopRule.estimate else nbest
        self._limits = limits.tolist()
        self._endings: list[list[Ending]] = [[] for _ in self._limits]
        self._to_beat = np.full(len(limits), -_INFINITY, dtype=np.float32)  # [B]
        self._occupied = np.zeros(len(limits), dtype=np.int64)  # [B] slots of finished hypotheses
        with np.errstate(over="ignore"):  # an infinite penalty makes every score smaller
            self._longest_penalty = config.length_penalty(limits.astype(np.float32) + started, config.lenpen)  # [B]

    def without_place(self, sentences: Ints) -> Flags:
        """[b, 2k] True for candidates that have no slot, because finished hypotheses take it."""
        rank: Ints = np.arange(2 * self._width)
        return (rank >= (self._width - self._occupied[sentences])[:, None]) & self._shrinks[sentences, None]

    def add(self, candidates: Candidates, ends: Flags, sentences: Ints, length: int, coverage: Coverage | None) -> None:
        """Store the candidates ``ends`` [b, n] of ``sentences`` [b], each ``length`` tokens long, in their order."""
        rows, columns = ends.nonzero()
        self._occupied[sentences] += ends.sum(1) * self._shrinks[sentences]
        totals, parents, _, eos_scores = candidates.each(lambda part: part[rows, columns])
        penalty = self._config.length_penalty(float(length + self._started), self._config.lenpen)
        covered = np.zeros_like(totals) if coverage is None else coverage.penalties(rows * self._width + parents)
        events = zip(sentences[rows].tolist(), parents.tolist(), totals.tolist(), covered.tolist(), eos_scores.tolist())
        for sentence, parent, total, uncovered, eos_score in events:
            if math.isnan(total):
                raise DataError("the model's scores are NaN: its checkpoint is damaged or its training diverged")
            score, within_limit = total / penalty + uncovered, length < self._limits[sentence]
            ending = Ending(sentence, length, parent, total, score, eos_score, within_limit)
            self._to_beat[sentence] = self._keep(self._endings[sentence], ending)

    def _keep(self, endings: list[Ending], ending: Ending) -> float:
        """Add an ending. Return the score that an unfinished hypothesis must now exceed."""
        if self._config.stop is StopRule.first:
            if len(endings) < self._needed_by_first:
                endings.append(ending)
            return _INFINITY if len(endings) == self._needed_by_first else -_INFINITY
        endings.append(ending)
        endings.sort(key=lambda ending: -ending.score)
        del endings[self._kept :]
        decided = self._config.stop in (StopRule.bound, StopRule.estimate) and len(endings) == self._kept
        return endings[-1].score if decided else -_INFINITY

    def settled(self, sentences: Ints, largest: Floats, length: int) -> Flags:
        """[b] True where the search ends, by its stop rule or because no hypothesis is left. ``largest`` [b]: the largest
        log-probability of an unfinished hypothesis; -inf if none is unfinished. ``length``: its tokens."""
        # A log-probability only falls, the penalty only grows and coverage adds nothing: no score can become better.
        penalty: Any = self._longest_penalty[sentences]
        if self._config.stop is StopRule.estimate:  # a longer hypothesis may still have a better score
            penalty = self._config.length_penalty(float(length + self._started), self._config.lenpen)
        with np.errstate(invalid="ignore"):
            reachable = largest / penalty
        settled: Flags = (largest == -_INFINITY) | (reachable <= self._to_beat[sentences])
        return settled

    def has_hypothesis(self, sentence: int) -> bool:
        """Return whether the sentence has a finished hypothesis."""
        return bool(self._endings[sentence])

    def best_endings(self, sentence: int) -> list[Ending]:
        """Return the endings of the ``nbest`` hypotheses with the best scores, best first."""
        endings = sorted(self._endings[sentence], key=lambda ending: -ending.score)[: self._nbest]
        if not endings:
            raise DataError(
                "the model gives every hypothesis of a sentence probability zero; its checkpoint is damaged or its "
                "training diverged"
            )
        return endings
