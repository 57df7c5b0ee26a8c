"""A memory of slots that a query reads several times: Sukhbaatar et al. 2015, arXiv:1503.08895.

Shapes: B sentences, S source positions, T queries (target positions, or the K hypotheses of a sentence), D slot size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from nmt.layers.recurrent_attention import DotAttention

Distances = Callable[[Tensor, int], Tensor]  # lengths [B], longest -> [B, longest]; padding may hold any distance


def from_end(lengths: Tensor, longest: int) -> Tensor:
    """0 at a sentence's last piece, counted backwards from there: section 4.1."""
    return (lengths[:, None] - 1 - torch.arange(longest, device=lengths.device)).clamp(min=0)


def from_start(lengths: Tensor, longest: int) -> Tensor:
    """0 at a sentence's first piece."""
    return torch.arange(longest, device=lengths.device).expand(len(lengths), -1)


class Slots(nn.Module):
    """A x_i + T(i): one vector for each piece (section 2.1) and one for its place (section 4.1).

    ``distances`` says how places are counted; with more than one way the vectors of all are added. All values start
    from a normal distribution with standard deviation ``spread``.
    """

    def __init__(
        self, vocabulary_size: int, size: int, distances: Sequence[Distances], max_positions: int, spread: float
    ) -> None:
        super().__init__()
        self.content = nn.Embedding(vocabulary_size, size)
        self.places = nn.ModuleList(nn.Embedding(max_positions, size) for _ in distances)
        self.distances = tuple(distances)
        for table in (self.content, *self.places):
            nn.init.normal_(cast(nn.Embedding, table).weight, std=spread)

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """[B, S] -> [B, S, D]"""
        slots: Tensor = self.content(source)
        for place, distances in zip(self.places, self.distances):
            slots = slots + place(distances(lengths, source.size(1)))
        return slots


class Hops(nn.Module):
    """p^k = softmax(u^k . m^k), o^k = sum_i p_i^k c_i^k, u^{k+1} = u^k + o^k: equations 1, 2 and 4."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attention = DotAttention(size)

    def forward(self, query: Tensor, slots: Sequence[Tensor], bias: Tensor) -> tuple[Tensor, list[Tensor]]:
        """u^1 [B, T, D] -> u^{K+1} [B, T, D], and the weights [B, T, S] of each hop; bias [B, 1, S] -inf at padding.

        K hops read K + 1 sets of slots: what one hop returns (c^k), the next one compares with (m^{k+1}). This is the
        paper's "adjacent" tying, A^{k+1} = C^k, with the temporal encodings tied alike: section 2.2.
        """
        weights = []
        for keys, values in pairwise(slots):
            context, weight = self.attention(query, self.attention.project(keys), values, bias)
            query = query + context
            weights.append(weight)
        return query, weights
