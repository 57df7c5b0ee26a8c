"""Choosing the best continuations of a beam without ranking the whole vocabulary.

Legend: B sentences, K beam, N = B*K hypotheses, V vocabulary, C blocks of a vocabulary, W width of a block.

A full top-k over K*V scores costs more than the output layer of a small model. Instead one pass finds the maximum of
each block of the vocabulary; the best n elements can only stand in the n blocks with the highest maxima, so only
these are ranked. The same maxima serve the log-sum-exp, and no tensor of log-probabilities is ever made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.interface import StepOutput
from nmt.native.ranking import best_continuations, ranks, summarise
from nmt.search.rules import Rules

_WIDTH = 64  # of a block; measured: 32 and 128 are slower
_FEW = 1024  # entries of a vocabulary that are ranked as fast without blocks
_CACHED_NUMBERS = 2**18  # that a core's cache holds
_INFINITY = float("inf")


def forbid(values: Tensor, tokens: Iterable[int]) -> None:
    """Minus infinity for these tokens of [..., V]; as an index a list is copied to a GPU, which is waited for."""
    for token in tokens:
        values[..., token] = -_INFINITY


@dataclass(frozen=True)
class Candidates:
    """Continuations of each sentence's hypotheses, best first. Equal totals: lower hypothesis, then lower token id."""

    totals: Tensor  # [B, n] log-probability of the hypothesis so far and this token; -inf: there is no such candidate
    parents: Tensor  # [B, n] which of the K hypotheses is continued
    tokens: Tensor  # [B, n]

    @staticmethod
    def forced(totals: Tensor, tokens: Tensor) -> Candidates:
        """Each of K hypotheses continued by its sentence's token [B], with the totals [B, K] after it; n = 2K, half of it
        empty."""
        ranked = totals.sort(dim=1, descending=True, stable=True)
        beam = totals.size(1)
        tokens = tokens[:, None].expand_as(ranked.indices)
        return Candidates(
            torch.nn.functional.pad(ranked.values, (0, beam), value=-_INFINITY),
            torch.nn.functional.pad(ranked.indices, (0, beam)),
            torch.nn.functional.pad(tokens, (0, beam), value=PAD),
        )

    def replace(self, where: Tensor, other: Candidates) -> Candidates:
        """The other's candidates for the sentences ``where`` [B] is True."""
        column = where[:, None]
        return Candidates(
            torch.where(column, other.totals, self.totals),
            torch.where(column, other.parents, self.parents),
            torch.where(column, other.tokens, self.tokens),
        )

    def without_eos(self) -> Candidates:
        """All that are not eos, in their order, before all that are."""
        order = (self.tokens == EOS).byte().argsort(dim=1, stable=True)
        return Candidates(self.totals.gather(1, order), self.parents.gather(1, order), self.tokens.gather(1, order))

    def emptied(self, sentences: Tensor) -> Candidates:
        """None for those sentences that are True in [B]."""
        return Candidates(self.totals.masked_fill(sentences[:, None], -_INFINITY), self.parents, self.tokens)

    def first(self, count: int) -> Candidates:
        return Candidates(self.totals[:, :count], self.parents[:, :count], self.tokens[:, :count])


class StepScores:
    """The scores of one step, and the questions that a search asks about them.

    ``rules`` change what continuations are ranked by; log-probabilities remain the model's.
    """

    def __init__(self, output: StepOutput, rules: Rules | None = None) -> None:
        self._own = output.scores.float().contiguous()  # [N, V]
        self._natively = ranks(self._own)
        self._look_at(self._own, normalise=not output.normalised)
        if rules is not None and rules.any:
            self._look_at(rules.changed(self._own, self.normaliser), normalise=None)

    def _look_at(self, scores: Tensor, normalise: bool | None) -> None:
        """``normalise``: whether the log-sum-exp is wanted, or zeros in its place; None: it stays what it was."""
        self.scores = scores
        if self._natively:
            self._maxima, normaliser = summarise(scores, normalise=normalise is True)
        else:
            self._find_maxima(scores)
            normaliser = self._log_sum_exp() if normalise else None
        if normalise is not None:
            self.normaliser = self._zeros() if normaliser is None else normaliser  # [N]

    def _find_maxima(self, scores: Tensor) -> None:
        rows, vocabulary = scores.shape
        self._blocks = vocabulary // _WIDTH if vocabulary > _FEW else 0
        covered = self._blocks * _WIDTH
        self._rest = scores[:, covered:]  # [N, fewer than W] what fills no block
        self._maxima = scores[:, :covered].view(rows, self._blocks, _WIDTH).amax(-1)  # [N, C]

    @property
    def num_rows(self) -> int:
        return self._own.size(0)

    def log_probability(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Of ``tokens`` in the given rows (default: one token for each row), in the tokens' shape."""
        if rows is None:
            return self._own.gather(1, tokens[:, None]).squeeze(1) - self.normaliser
        return self._own[rows, tokens] - self.normaliser[rows]

    def best(self, totals: Tensor, count: int, *, eos_allowed: bool) -> Candidates:
        """The ``count`` best continuations of hypotheses with log-probabilities ``totals`` [B, K].

        Pad and bos are never among them. There are always ``count`` columns; where a sentence has fewer
        continuations, the last ones have a total of -inf.
        """
        banned = [PAD, BOS] if eos_allowed else [PAD, BOS, EOS]
        if self._natively:
            return Candidates(*best_continuations(self.scores, self._maxima, totals, self.normaliser, count, banned))
        base = totals - self.normaliser.view_as(totals)  # [B, K]
        values, index = self._rest_elements(base, banned)
        if self._blocks:
            in_blocks, index_in_blocks = self._block_elements(base, count, banned)
            values = torch.cat([in_blocks, values], 1)
            index = torch.cat([index_in_blocks, index], 1)
        if values.size(1) < count:
            values = torch.nn.functional.pad(values, (0, count - values.size(1)), value=-_INFINITY)
            index = torch.nn.functional.pad(index, (0, count - index.size(1)))
        best = sort_keys(values, index).topk(count).indices
        chosen = index.gather(1, best)
        vocabulary = self.scores.size(1)
        return Candidates(values.gather(1, best), chosen // vocabulary, chosen % vocabulary)

    def _rest_elements(self, base: Tensor, banned: list[int]) -> tuple[Tensor, Tensor]:
        """Totals [B, K * rest] of all tokens that fill no block, and their positions in the sentence's K * V."""
        values = self._rest.view(*base.shape, self._rest.size(1)) + base[:, :, None]  # [B, K, rest]
        if not self._blocks:
            forbid(values, banned)
        vocabulary, beam = self.scores.size(1), base.size(1)
        tokens = torch.arange(self._blocks * _WIDTH, vocabulary, device=base.device)
        rows = torch.arange(0, beam * vocabulary, vocabulary, device=base.device)
        index = (rows[:, None] + tokens).flatten().expand(base.size(0), -1)
        return values.flatten(1), index

    def _block_elements(self, base: Tensor, count: int, banned: list[int]) -> tuple[Tensor, Tensor]:
        """Totals of all tokens in the blocks that can hold one of the ``count`` best, and their positions."""
        batch, beam = base.shape
        maxima = (self._maxima.view(*base.shape, -1) + base[:, :, None]).flatten(1)  # [B, K * C]
        order = torch.arange(maxima.size(1), device=base.device)
        # A banned token may raise the maximum of the first block of each row: hence `beam` blocks more.
        blocks = sort_keys(maxima, order).topk(min(count + beam, maxima.size(1))).indices  # [B, n]
        row, block = blocks // self._blocks, blocks % self._blocks
        start = row * self.scores.size(1) + block * _WIDTH
        offsets = torch.arange(_WIDTH, device=base.device)
        index = (start[:, :, None] + offsets).flatten(1)  # [B, n * W]
        values = self.scores.view(batch, -1).gather(1, index).view(batch, -1, _WIDTH)
        values += base.gather(1, row)[:, :, None]  # [B, n, W]
        for token in banned:
            values[:, :, token].masked_fill_(block == 0, -_INFINITY)
        return values.flatten(1), index

    def _log_sum_exp(self) -> Tensor:
        """[N], a few rows at a time: on a CPU fresh memory for N * V numbers costs more than the arithmetic."""
        if not self._blocks:
            return self.scores.logsumexp(1)
        highest = torch.cat([self._maxima, self._rest], 1).amax(1, keepdim=True)  # [N, 1]
        rows, vocabulary = self.scores.shape
        at_once = max(1, _CACHED_NUMBERS // vocabulary) if self.scores.device.type == "cpu" else max(1, rows)
        scratch = self.scores.new_empty(min(at_once, rows), vocabulary)
        sums = [
            torch.sub(part, top, out=scratch[: len(part)]).exp_().sum(1)
            for part, top in zip(torch.split(self.scores, at_once), torch.split(highest, at_once))
        ]
        return torch.cat(sums).log_() + highest.squeeze(1)

    def _zeros(self) -> Tensor:
        return self._own.new_zeros(self.num_rows)


def sort_keys(values: Tensor, index: Tensor) -> Tensor:
    """Distinct integers in the order (higher value, then lower index): top-k alone leaves ties to chance."""
    bits = values.view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # the bits of a negative float grow with its size
    return (ordered.to(torch.int64) << 32) - index
