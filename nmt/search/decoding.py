"""What a beam search drives: an engine that holds a model, and the batches that it decodes.

Everything here is NumPy on a CPU, wherever the model computes: a step gives the best continuations, which are few.

Legend: B sentences, b of them still there, K beam, N = b*K hypotheses (row s*K + k is slot k of sentence s), n candidates
of each sentence, V vocabulary, C its blocks, S source positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from nmt.data.vocabulary import EOS, PAD, Flags, Floats, Ids, Ints
from nmt.native.library import address, built
from nmt.search.requests import Changes

if TYPE_CHECKING:
    from nmt.interface import Decodable

_BLOCK = 64  # as in ranking.c
_INFINITY = float("inf")


class Candidates(NamedTuple):
    """Continuations of each sentence's hypotheses, best first. Equal totals: lower hypothesis, then lower token id."""

    totals: Floats  # [B, n] log-probability of the hypothesis so far and this token; -inf: there is no such candidate
    parents: Ints  # [B, n] which of the K hypotheses is continued
    tokens: Ints  # [B, n]
    log_probabilities: Floats  # [B, n] of the tokens, as the model finds them

    @staticmethod
    def forced(totals: Floats, tokens: Ints, log_probabilities: Floats) -> Candidates:
        """Each of K hypotheses continued by its sentence's token [B], with totals [B, K] after it, and the log-probability
        of the token [B, K]; n = 2K, half of it empty."""
        slots, every = (np.broadcast_to(part, totals.shape) for part in (np.arange(totals.shape[1]), tokens[:, None]))
        found = Candidates(totals, slots, every, log_probabilities).ordered(np.argsort(-totals, axis=1, kind="stable"))
        nothing = (-_INFINITY, 0, PAD, 0.0)
        return found.each(lambda part, empty: np.hstack([part, np.full_like(part, empty)]), nothing)

    def each(self, change: Callable[..., Any], *others: Iterable[Any]) -> Candidates:
        """``change`` of every part and of what stands in its place in ``others``."""
        return Candidates(*map(change, self, *others))

    def ordered(self, order: Ints) -> Candidates:
        """Those at the places ``order`` [B, n'] of each sentence."""
        return self.each(lambda part: np.take_along_axis(part, order, axis=1))

    def first(self, count: int) -> Candidates:
        return self.each(lambda part: part[:, :count])

    def without_eos(self) -> Candidates:
        """All that are not eos, in their order, before all that are."""
        return self.ordered(np.argsort(self.tokens == EOS, axis=1, kind="stable"))

    def replace(self, where: Flags, other: Candidates) -> Candidates:
        """The other's candidates for the sentences ``where`` [B] is True."""
        return other.each(lambda part, own: np.where(where[:, None], part, own), self)

    def emptied(self, where: Flags) -> Candidates:
        """None in the places [B, n], or in the rows [B, 1], that are True."""
        return self._replace(totals=np.where(where, np.float32(-_INFINITY), self.totals))


class Scores(Protocol):
    """The scores of one step, until the next one."""

    attention: Floats | None  # [N, S], when asked for

    def change(self, changes: Changes) -> None:
        """What continuations are ranked by from now on; log-probabilities remain the model's."""

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        """The ``count`` best continuations of hypotheses with log-probabilities ``totals`` [b, K], none of them by a
        ``banned`` token. Where a sentence has fewer, the last ones have a total of -inf."""

    def log_probability(self, tokens: Ints, rows: Ints) -> Floats:
        """The model's, of tokens in rows of N, in the shape of both."""

    def ranked(self, first: int, end: int) -> Floats:
        """[end - first, V] what the rows ``first`` to ``end`` are ranked by: log-probabilities, or what became of them."""


class Decoding(Protocol):
    """The hypotheses of a batch of sentences. It keeps what a model remembers of them."""

    leave_freely: bool  # whether sentences leave without work for those that stay

    def step(self, tokens: Ints, attention: bool = False) -> Scores:
        """``tokens`` [N]: the last token of each hypothesis (bos at first)."""

    def follow(self, parents: Ints, staying: Ints) -> None:
        """The next step is of the sentences ``staying`` (places in b, ascending); slots continue ``parents`` [b, K]."""


class Engine(Protocol):
    """A model that is ready to translate."""

    device: str  # where it computes: "cpu", "cuda" or "cuda:1"
    longest_source: int | None  # eos included, that the model can read; None: no limit of its own
    usual_tokens: int  # source pieces of a batch, padding included, where the user says nothing

    @property
    def decodable(self) -> Decodable:
        """The same for searches that take their steps in torch."""

    @property
    def scored(self) -> Decodable:
        """What scores given translations; a model that is trained as well reads them at once."""

    def forget(self) -> None:
        """Memory is short: what is kept for later batches may go."""

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> Decoding:
        """``sources``: ids ending in eos. ``lists``: of each sentence the target ids that it may need, the special ones
        first; tokens are then places in the own list."""

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        """[B] the longest targets that the model can write for sources of these lengths, eos included; None: no limit."""


def summarise(scores: Floats, *, normalise: bool) -> tuple[Floats, Floats | None]:
    """In C: of scores [N, V] the highest of each block [N, C], and if asked the log-sum-exp [N]."""
    rows, vocabulary = scores.shape
    maxima = np.empty((rows, -(-vocabulary // _BLOCK)), dtype=np.float32)
    normaliser = np.empty(rows, dtype=np.float32) if normalise else None
    built().summarise(address(scores), rows, vocabulary, address(maxima), address(normaliser))
    return maxima, normaliser


class ScoresInC:
    """``Scores`` that lie on a CPU, ranked in C."""

    def __init__(self, scores: Floats, normaliser: Floats, attention: Floats | None, maxima: Floats | None) -> None:
        """Scores [N, V], which less their ``normaliser`` [N] are the model's, and the ``maxima`` of their blocks; None: not
        known here, and not asked for before a change."""
        self._scores, self._ranked, self._maxima = scores, scores, maxima
        self._normaliser = normaliser
        self.attention = attention

    def change(self, changes: Changes) -> None:
        self._ranked = self._scores.copy()
        changes.apply(self._ranked, self._normaliser)
        self._maxima, _ = summarise(self._ranked, normalise=False)

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        (batch, beam), vocabulary = totals.shape, self._ranked.shape[1]
        best, places = np.empty((batch, count), dtype=np.float32), np.empty((2, batch, count), dtype=np.int64)
        flags, totals = flags_of(banned), np.ascontiguousarray(totals)
        given = map(address, (self._ranked, self._maxima, totals, self._normaliser))
        found = address(best), address(places[0]), address(places[1])
        built().best_continuations(*given, batch, beam, vocabulary, count, flags, len(flags), *found)
        rows = np.arange(0, totals.size, beam)[:, None] + places[0]
        return Candidates(best, places[0], places[1], self.log_probability(places[1], rows))

    def log_probability(self, tokens: Ints, rows: Ints) -> Floats:
        found: Floats = self._scores[rows, tokens] - self._normaliser[rows]
        return found

    def ranked(self, first: int, end: int) -> Floats:
        found: Floats = self._ranked[first:end] - self._normaliser[first:end, None]
        return found


def flags_of(banned: Sequence[int]) -> bytes:
    """1 for each of the first ids that is banned."""
    return bytes(token in banned for token in range(max(banned) + 1))
