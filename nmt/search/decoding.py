"""What a beam search drives: an engine that holds a model, and the batches that it decodes.

Everything here is NumPy on a CPU, wherever the model computes: a step gives the best continuations, which are few.

Legend: B sentences, b of them still there, K beam, N = b*K hypotheses (row s*K + k is slot k of sentence s), V vocabulary,
S source positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from nmt.data.hypothesis import Floats, Ids, Ints
from nmt.search.candidates import Candidates
from nmt.search.rules import Changes

if TYPE_CHECKING:
    from nmt.interface import Decodable


class Scores(Protocol):
    """The scores of one step, until the next one."""

    attention: Floats | None  # [N, S], when asked for

    def change(self, changes: Changes) -> None:
        """What continuations are ranked by from now on; log-probabilities remain the model's."""
        ...

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        """The ``count`` best continuations of hypotheses with log-probabilities ``totals`` [b, K], none of them by a
        ``banned`` token. Where a sentence has fewer, the last ones have a total of -inf."""
        ...

    def log_probability(self, tokens: Ints, rows: Ints) -> Floats:
        """The model's, of tokens in rows of N, in the shape of both."""
        ...

    def ranked(self, first: int, end: int) -> Floats:
        """[end - first, V] what the rows ``first`` to ``end`` are ranked by: log-probabilities, or what became of them."""
        ...


class Decoding(Protocol):
    """The hypotheses of a batch of sentences. It keeps what a model remembers of them."""

    leave_freely: bool  # whether sentences leave without work for those that stay

    def step(self, tokens: Ints, attention: bool = False) -> Scores:
        """``tokens`` [N]: the last token of each hypothesis (bos at first)."""
        ...

    def follow(self, parents: Ints, staying: Ints) -> None:
        """The next step is of the sentences ``staying`` (positions in b, ascending), whose slots continue ``parents``
        [b, K]."""
        ...


class Engine(Protocol):
    """A model that is ready to translate."""

    @property
    def device(self) -> str:
        """Where it computes: "cpu", "cuda" or "cuda:1"."""
        ...

    @property
    def longest_source(self) -> int | None:
        """The longest source (eos included) that the model can read; None: no limit of its own."""
        ...

    @property
    def decodable(self) -> Decodable:
        """The same for searches that take their steps in torch."""
        ...

    @property
    def scored(self) -> Decodable:
        """What scores given translations; a model that is trained as well reads them at once."""
        ...

    def forget(self) -> None:
        """Memory is short: what is kept for later batches may go."""
        ...

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> Decoding:
        """``sources``: ids ending in eos. ``lists``: of each sentence the target ids that it may need, the special ones
        first; tokens are then places in the own list."""
        ...

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        """[B] the longest target (eos included) that the model can write for sources of these lengths (eos included); None:
        no limit of its own."""
        ...
