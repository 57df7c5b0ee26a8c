"""Continuations of the hypotheses of a beam.

Legend: B sentences, K beam, n candidates of each sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nmt.data.hypothesis import Floats, Ints
from nmt.data.vocabulary import EOS, PAD

Flags = npt.NDArray[np.bool_]
_INFINITY = float("inf")


@dataclass(frozen=True)
class Candidates:
    """Continuations of each sentence's hypotheses, best first. Equal totals: lower hypothesis, then lower token id."""

    totals: Floats  # [B, n] log-probability of the hypothesis so far and this token; -inf: there is no such candidate
    parents: Ints  # [B, n] which of the K hypotheses is continued
    tokens: Ints  # [B, n]
    log_probabilities: Floats  # [B, n] of the tokens, as the model finds them

    @staticmethod
    def forced(totals: Floats, tokens: Ints, log_probabilities: Floats) -> Candidates:
        """Each of K hypotheses continued by its sentence's token [B], with totals [B, K] after it, and the log-probability
        of the token [B, K]; n = 2K, half of it empty."""
        order = np.argsort(-totals, axis=1, kind="stable")
        empty = np.zeros_like(order)
        return Candidates(
            np.concatenate([_taken(totals, order), np.full_like(totals, -_INFINITY)], axis=1),
            np.concatenate([order, empty], axis=1),
            np.concatenate([np.broadcast_to(tokens[:, None], order.shape), np.full_like(order, PAD)], axis=1),
            np.concatenate([_taken(log_probabilities, order), empty.astype(totals.dtype)], axis=1),
        )

    def replace(self, where: Flags, other: Candidates) -> Candidates:
        """The other's candidates for the sentences ``where`` [B] is True."""
        column = where[:, None]
        return Candidates(
            np.where(column, other.totals, self.totals),
            np.where(column, other.parents, self.parents),
            np.where(column, other.tokens, self.tokens),
            np.where(column, other.log_probabilities, self.log_probabilities),
        )

    def without_eos(self) -> Candidates:
        """All that are not eos, in their order, before all that are."""
        order = np.argsort(self.tokens == EOS, axis=1, kind="stable")
        return Candidates(
            _taken(self.totals, order),
            _taken(self.parents, order),
            _taken(self.tokens, order),
            _taken(self.log_probabilities, order),
        )

    def emptied(self, sentences: Flags) -> Candidates:
        """None for those sentences that are True in [B]."""
        totals = np.where(sentences[:, None], np.float32(-_INFINITY), self.totals)
        return Candidates(totals, self.parents, self.tokens, self.log_probabilities)

    def first(self, count: int) -> Candidates:
        return Candidates(
            self.totals[:, :count], self.parents[:, :count], self.tokens[:, :count], self.log_probabilities[:, :count]
        )


Number = TypeVar("Number", np.float32, np.int64)


def _taken(values: npt.NDArray[Number], order: Ints) -> npt.NDArray[Number]:
    return np.take_along_axis(values, order, axis=1)
