"""Additive scores inside the heads: Bahdanau et al. 2015, appendix A.1.2; compared in Vaswani et al. 2017, 3.2.1.

Shapes: B sentences, T queries, S keys, H heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from nmt.models.transformer.attention import Attend
from nmt.models.transformer.head_sizes import HeadSizes
from nmt.models.transformer.mask import Mask

CHUNK = 2**20  # elements of tanh(q + k) that exist at a time


class Additive(Attend):
    """softmax(v . tanh(q + k)) V; the matrices W and U of the paper are the projections of queries and keys."""

    def __init__(self, sizes: HeadSizes, dropout: float) -> None:
        super().__init__(dropout)
        self.vector = nn.Parameter(torch.empty(sizes.num_heads, sizes.d_k))
        nn.init.normal_(self.vector, std=sizes.d_k**-0.5)

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        dtype = self.vector.dtype  # under autocast the sums stay in float32
        scores: Tensor = _AdditiveScores.apply(queries.to(dtype), keys.to(dtype), self.vector)  # type: ignore[no-untyped-call]
        return scores


class _AdditiveScores(torch.autograd.Function):
    """v . tanh(q + k) for all pairs. The hidden layer is d_k times as large as the scores: it is made a few queries at
    a time, and made again for the gradient instead of being kept.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        """[B, H, T, d_k], [B, H, S, d_k], [H, d_k] -> [B, H, T, S]"""
        ctx.save_for_backward(queries, keys, vector)
        scores = queries.new_empty(*queries.shape[:3], keys.size(2))
        for part in _parts(queries, keys):
            scores[:, :, part] = _hidden(queries[:, :, part], keys).mul_(vector[:, None, None]).sum(-1)
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, vector = ctx.saved_tensors
        for_queries, for_keys = torch.empty_like(queries), torch.zeros_like(keys)
        for_vector = torch.zeros_like(vector)
        for part in _parts(queries, keys):
            hidden = _hidden(queries[:, :, part], keys)  # [B, H, t, S, d_k]
            outer = gradient[:, :, part, :, None]  # [B, H, t, S, 1]
            for_vector += (hidden * outer).sum((0, 2, 3))
            inner = hidden.square_().neg_().add_(1).mul_(vector[:, None, None]).mul_(outer)  # tanh' = 1 - tanh^2
            for_queries[:, :, part] = inner.sum(3)
            for_keys += inner.sum(2)
        return for_queries, for_keys, for_vector


def _hidden(queries: Tensor, keys: Tensor) -> Tensor:
    """[B, H, t, d_k], [B, H, S, d_k] -> [B, H, t, S, d_k]"""
    return (queries[:, :, :, None] + keys[:, :, None]).tanh_()


def _parts(queries: Tensor, keys: Tensor) -> Iterator[slice]:
    """Consecutive queries whose hidden layers are about as large as a chunk."""
    step = max(1, CHUNK // max(1, keys.numel()))
    for first in range(0, queries.size(2), step):
        yield slice(first, first + step)
