"""The scores of one step in memory of the CPU, ranked in C.

Legend: b sentences in the batch, K hypotheses of each, N = b*K hypotheses, V vocabulary, C blocks of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nmt.data.vocabulary import Floats, Ints
from nmt.native.library import address, built
from nmt.search.constraints import Changes
from nmt.search.decoding import Candidates

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 64  # as in ranking.c


def summarise(scores: Floats, *, normalise: bool) -> tuple[Floats, Floats | None]:
    """Return the maximum of each block of scores [N, V] as [N, C], and with ``normalise`` the log-sum-exp [N]."""
    rows, vocabulary = scores.shape
    maxima = np.empty((rows, -(-vocabulary // _BLOCK)), dtype=np.float32)
    normaliser = np.empty(rows, dtype=np.float32) if normalise else None
    built().summarise(address(scores), rows, vocabulary, address(maxima), address(normaliser))
    return maxima, normaliser


class CScores:
    """``Scores`` that lie in memory of the CPU."""

    def __init__(self, scores: Floats, attention: Floats | None, *, normalized: bool) -> None:
        """Scores [N, V]; ``normalized``: they are log-probabilities."""
        self._scores, self._ranked = scores, scores
        self._normalized = normalized
        self._maxima: Floats | None = None  # of the blocks of what is ranked
        self._normaliser = np.zeros(len(scores), dtype=np.float32) if normalized else None  # [N] None: not computed yet
        self.attention = attention

    @property
    def normaliser(self) -> Floats:
        """[N] the logarithm of the sum of the exponentials of each row."""
        if self._normaliser is None:
            self._maxima, self._normaliser = summarise(self._scores, normalise=True)
        assert self._normaliser is not None
        return self._normaliser

    def change(self, changes: Changes) -> None:
        self._ranked = self._scores.copy()
        changes.apply(self._ranked, self.normaliser)
        self._maxima, _ = summarise(self._ranked, normalise=False)

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        normaliser = self.normaliser
        if self._maxima is None:
            self._maxima, _ = summarise(self._ranked, normalise=False)
        (batch, beam), vocabulary = totals.shape, self._ranked.shape[1]
        best, places = np.empty((batch, count), dtype=np.float32), np.empty((2, batch, count), dtype=np.int64)
        flags, totals = flags_of(banned), np.ascontiguousarray(totals)
        arrays = map(address, (self._ranked, self._maxima, totals, normaliser))
        results = address(best), address(places[0]), address(places[1])
        built().best_continuations(*arrays, batch, beam, vocabulary, count, flags, len(flags), *results)
        rows = np.arange(0, totals.size, beam)[:, None] + places[0]
        return Candidates(best, places[0], places[1], self.log_probability(places[1], rows))

    def log_probability(self, tokens: Ints, rows: Ints) -> Floats:
        logarithms: Floats = self._scores[rows, tokens] - self.normaliser[rows]
        return logarithms

    def ranked(self, first: int, end: int) -> Floats:
        logarithms: Floats = self._ranked[first:end] - self.normaliser[first:end, None]
        return logarithms

    def log_probabilities(self) -> Tensor:
        import torch

        scores = torch.from_numpy(self._scores)
        return scores if self._normalized else scores.log_softmax(1)


def flags_of(banned: Sequence[int]) -> bytes:
    """Return one byte for each token id up to the highest banned one: 1 if it is banned."""
    return bytes(token in banned for token in range(max(banned) + 1))
