"""The scores of one step in torch.

Choosing the best continuations does not rank the whole vocabulary. A full top-k over K*V scores costs more than the
output layer of a small model. Instead one pass finds the maximum of each block of the vocabulary; the best n elements
can only be in the n blocks with the highest maxima, so only these are ranked. Nothing makes all log-probabilities.

Legend: B sentences, K beam, N = B*K hypotheses, V vocabulary, C blocks of a vocabulary, W width of a block, S source
positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.vocabulary import Floats, Ints
from nmt.devices.kinds import device_of
from nmt.search.constraints import Changes
from nmt.search.decoding import Candidates

_WIDTH = 64  # of a block; measured: 32 and 128 are slower
_CACHED_NUMBERS = 2**18  # that a core's cache holds
_INFINITY = float("inf")


class TorchScores:
    """The scores of one step in torch, on the device of the model. What a search reads comes in one copy."""

    def __init__(self, scores: Tensor, attention: Tensor | None, *, normalized: bool) -> None:
        """Scores [N, V], attention [N, S]; ``normalized``: scores are log-probabilities."""
        self._own, self._scores = scores, scores
        self._device = device_of(scores)
        self._normalized = normalized
        self._attention = attention

    @cached_property
    def attention(self) -> Floats | None:
        """[N, S]"""
        return None if self._attention is None else self._fetched(self._attention)

    @cached_property
    def normaliser(self) -> Tensor:
        """[N] the logarithm of the sum of the exponentials of each row."""
        return self._own.new_zeros(len(self._own)) if self._normalized else _log_sums(self._own)

    @cached_property
    def _maxima(self) -> Tensor:
        """[N, C] the highest score of each block."""
        covered = self._scores.size(1) // _WIDTH * _WIDTH
        blocks = self._scores[:, :covered].view(len(self._scores), covered // _WIDTH, _WIDTH).amax(-1)
        if covered == self._scores.size(1):
            return blocks
        return torch.cat([blocks, self._scores[:, covered:].amax(1, keepdim=True)], 1)

    def change(self, changes: Changes) -> None:
        with torch.inference_mode():
            self._scores = self._own.clone()
            changes.placed(self._device.sent).apply(self._scores, self.normaliser)
            vars(self).pop("_maxima", None)

    def log_probability(self, tokens: Ints, rows: Ints) -> Floats:
        tokens_there, rows_there = (self._device.sent(part) for part in (tokens, rows))
        with torch.inference_mode():
            return self._fetched(self._own[rows_there, tokens_there] - self.normaliser[rows_there])

    def ranked(self, first: int, end: int) -> Floats:
        with torch.inference_mode():
            return self._fetched(self._scores[first:end] - self.normaliser[first:end, None])

    def log_probabilities(self) -> Tensor:
        return self._own if self._normalized else self._own.log_softmax(1)

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        with torch.inference_mode():
            return self._best(self._device.sent(totals), count, banned)

    def _best(self, totals: Tensor, count: int, banned: Sequence[int]) -> Candidates:
        base = totals - self.normaliser.view_as(totals)  # [B, K]
        (batch, beam), vocabulary, blocks = base.shape, self._scores.size(1), self._maxima.size(1)
        maxima = (self._maxima.view(batch, beam, blocks) + base[:, :, None]).flatten(1)  # [B, K * C]
        order = torch.arange(maxima.size(1), device=base.device)
        # A banned token may raise the maximum of the first block of each row: hence `beam` blocks more.
        best_blocks = self._largest(_keys(maxima, order), min(count + beam, maxima.size(1)))  # [B, n]
        row, begin = best_blocks // blocks, best_blocks % blocks * _WIDTH
        tokens = begin[:, :, None] + torch.arange(_WIDTH, device=base.device)  # [B, n, W]
        index = row[:, :, None] * vocabulary + tokens.clamp(max=vocabulary - 1)  # in the sentence's K * V
        values = (
            self._scores.view(batch, -1).gather(1, index.flatten(1)).view_as(index) + base.gather(1, row)[:, :, None]
        )
        absent = tokens >= vocabulary
        for token in banned:  # as an index a list would be copied to a GPU, which is waited for
            absent |= tokens == token
        values, index = values.masked_fill_(absent, -_INFINITY).flatten(1), index.flatten(1)
        if values.size(1) < count:
            values = F.pad(values, (0, count - values.size(1)), value=-_INFINITY)
            index = F.pad(index, (0, count - index.size(1)))
        best = self._largest(_keys(values, index), count)
        chosen = index.gather(1, best)
        rows = torch.arange(0, totals.numel(), beam, device=totals.device)[:, None] + chosen // vocabulary
        logarithms = self._own[rows, chosen % vocabulary] - self.normaliser[rows]
        weights = [] if self._attention is None or "attention" in vars(self) else [self._attention]
        places, after, own, *attention = self._device.fetched(chosen, values.gather(1, best), logarithms, *weights)
        vars(self).update(zip(["attention"], attention))
        return Candidates(after, places // vocabulary, places % vocabulary, own)

    def _largest(self, keys: Tensor, count: int) -> Tensor:
        """Return the places of the largest keys of each row."""
        if self._device.ranks_int64:
            return keys.topk(count).indices
        return self._device.moved(keys.cpu().topk(count).indices)

    def _fetched(self, numbers: Tensor) -> Floats:
        (array,) = self._device.fetched(numbers)
        return array


def _log_sums(scores: Tensor) -> Tensor:
    """[N], a few rows at a time: on a CPU fresh memory for N * V numbers costs more than the arithmetic."""
    at_once = _CACHED_NUMBERS // scores.size(1) if scores.device.type == "cpu" else len(scores)
    return torch.cat([part.logsumexp(1) for part in torch.split(scores, max(1, at_once))])


def _keys(values: Tensor, index: Tensor) -> Tensor:
    """Distinct integers in the order (higher value, then lower index): top-k alone leaves ties to chance."""
    bits = values.view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # the bits of a negative float grow with its size
    return (ordered.to(torch.int64) << 32) - index
