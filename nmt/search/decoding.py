"""The protocol of an engine: a model that is ready to translate, and the batches that it decodes.

A search and an engine exchange NumPy arrays, wherever the model computes: the best continuations of a step are few.

Legend: B sentences, b of them still in the batch, K beam, N = b*K hypotheses (row s*K + k is slot k of sentence s), n
candidates of each sentence, V vocabulary, S source positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from nmt.data.vocabulary import BOS, EOS, PAD, Flags, Floats, Ids, Ints
from nmt.search.constraints import Changes
from nmt.search.requests import Sentences

if TYPE_CHECKING:
    from torch import Tensor

_INFINITY = float("inf")


class Candidates(NamedTuple):
    """Continuations of the hypotheses of each sentence, best first. Equal totals: lower slot, then lower token id."""

    totals: Floats  # [B, n] log-probability of the hypothesis with this token; -inf: the candidate is missing
    parents: Ints  # [B, n] slot of the continued hypothesis
    tokens: Ints  # [B, n]
    log_probabilities: Floats  # [B, n] of the tokens, by the model

    @staticmethod
    def forced(totals: Floats, tokens: Ints, log_probabilities: Floats) -> Candidates:
        """Continue each of K hypotheses with the token [B] of its sentence. ``totals`` [B, K] include the token, which has
        these ``log_probabilities`` [B, K]; n = 2K, the second half is empty."""
        slots, every = (np.broadcast_to(part, totals.shape) for part in (np.arange(totals.shape[1]), tokens[:, None]))
        candidates = Candidates(totals, slots, every, log_probabilities).ordered(
            np.argsort(-totals, axis=1, kind="stable")
        )
        nothing = (-_INFINITY, 0, PAD, 0.0)
        return candidates.each(lambda part, empty: np.hstack([part, np.full_like(part, empty)]), nothing)

    def each(self, change: Callable[..., Any], *others: Iterable[Any]) -> Candidates:
        """Apply ``change`` to every field, with the same field of ``others``."""
        return Candidates(*map(change, self, *others))

    def ordered(self, order: Ints) -> Candidates:
        """Return the candidates at the positions ``order`` [B, n'] of each sentence."""
        return self.each(lambda part: np.take_along_axis(part, order, axis=1))

    def first(self, count: int) -> Candidates:
        return self.each(lambda part: part[:, :count])

    def without_eos(self) -> Candidates:
        """Move candidates with eos behind all others."""
        return self.ordered(np.argsort(self.tokens == EOS, axis=1, kind="stable"))

    def replace(self, where: Flags, other: Candidates) -> Candidates:
        """Return the candidates of ``other`` for sentences where ``where`` [B] is True, else these."""
        return other.each(lambda part, own: np.where(where[:, None], part, own), self)

    def emptied(self, where: Flags) -> Candidates:
        """Mark candidates as missing where ``where`` [B, n], or of whole rows [B, 1], is True."""
        return self._replace(totals=np.where(where, np.float32(-_INFINITY), self.totals))


class Scores(Protocol):
    """The scores of one step; valid until the next step."""

    @property
    def attention(self) -> Floats | None:
        """[N, S], if the step was called with ``attention``. It costs nothing more after ``best``."""

    def change(self, changes: Changes) -> None:
        """Apply ``changes`` to the scores that ``best`` and ``ranked`` use; log-probabilities stay the model's."""

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        """Return the ``count`` best continuations of hypotheses with log-probabilities ``totals`` [b, K], without the
        ``banned`` tokens. If a sentence has fewer, the last ones have a total of -inf."""

    def log_probability(self, tokens: Ints, rows: Ints) -> Floats:
        """Return the model's log-probabilities of tokens in rows of N, in the shape of both."""

    def ranked(self, first: int, end: int) -> Floats:
        """Return the changed log-probabilities of the rows ``first`` to ``end``: [end - first, V]."""

    def log_probabilities(self) -> Tensor:
        """Return the model's log-probabilities [N, V] on its device, in float32; read-only."""


class Decoding(Protocol):
    """The unfinished hypotheses of a batch. It owns the encoder output and the decoder state."""

    leave_freely: bool  # whether sentences can leave without moving those that stay

    def step(self, tokens: Ints, attention: bool = False) -> Scores:
        """Read ``tokens`` [N], the last token of each hypothesis (bos at first)."""

    def follow(self, parents: Ints, staying: Ints) -> None:
        """Keep the sentences ``staying`` (positions in b, ascending); the slots continue ``parents`` [b, K]."""


def first_tokens(decoding: Decoding, batch: Sentences, beam: int) -> Ints:
    """Return the tokens [N] of the first step of a search: bos, or the last token of the start of each translation.

    The decoding reads bos and the other tokens of the starts, which have no scores: the model does not choose them.
    """
    count = len(batch.sources)
    tokens, same, everyone = np.full(count * beam, BOS), np.tile(np.arange(beam), (count, 1)), np.arange(count)
    for column in range(batch.started):
        decoding.step(tokens)
        decoding.follow(same, everyone)
        tokens = np.array([request.start[column] for request in batch.requests or ()]).repeat(beam)
    return tokens


@runtime_checkable
class Engine(Protocol):
    """A model, or an ensemble, that is ready to translate. A subclass inherits the defaults."""

    device: str  # where it computes: "cpu", "cuda" or "cuda:1"
    longest_source: int | None  # longest source that the model can read, eos included; None: no limit
    usual_tokens: int  # default batch size in source tokens, padding included
    interleaves: bool = False  # whether another search may run between two steps of a search

    def forget(self) -> None:
        """Free what is kept for later batches: memory is short."""
        return None

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> Decoding:
        """Encode ``sources``, ids ending in eos. ``lists``: the vocabulary shortlist of each sentence, sorted, special ids
        first; tokens are then positions in the sentence's own list."""

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        """Return the longest targets [B], eos included, that the model can write for sources of these lengths; None: no
        limit."""

    def target_scores(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Floats] | None:
        """Return the log-probability of each token of ``targets`` (ids ending in eos), read in one pass; None: this engine
        scores targets step by step."""
        return None
