"""The average attention network, a decoder sublayer without self-attention: Zhang et al. 2018, arXiv:1805.00631.

Shapes: B sentences, K beam, N = B*K hypotheses, T target positions, D model width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.layers.linear import Linear
from nmt.models.transformer.autoregression import Autoregression, LayerCache
from nmt.models.transformer.feed_forward import FeedForward
from nmt.models.transformer.mask import Mask


@dataclass
class Total(LayerCache):
    """The sum of all inputs so far: one vector a row, however long the sentence."""

    total: Tensor  # [N, D] in float32 at least


class AverageAttention(Autoregression):
    """The mean of all inputs up to a position, g_j = FFN(1/j sum_{k<=j} y_k), behind gates: equations 1 to 5.

    i_j, f_j = sigmoid(W [y_j; g_j]) and h_j = i_j * y_j + f_j * g_j; the residual connection and the norm of the paper
    are those of any sublayer. The FFN is the paper's own, of the model's inner width.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.d_model = d_model
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.gates = Linear(2 * d_model, 2 * d_model, bias=False)

    def forward(self, x: Tensor, mask: Mask, record: list[Tensor] | None = None) -> Tensor:
        return self._gated(x, x.to(_wide(x.dtype)).cumsum(1), mask)

    def start(self, sentences: int, beam: int, like: Tensor) -> Total:
        return Total(like.new_zeros(sentences * beam, self.d_model, dtype=_wide(like.dtype)))

    def step(self, x: Tensor, cache: LayerCache, mask: Mask) -> tuple[Tensor, LayerCache]:
        assert isinstance(cache, Total)
        totals = cache.total.view_as(x) + x
        return self._gated(x, totals, mask), Total(totals.flatten(0, 1))

    def _gated(self, x: Tensor, totals: Tensor, mask: Mask) -> Tensor:
        """x and the sums up to each position [B, T, D] -> [B, T, D]"""
        assert mask.places is not None
        means = (totals / (mask.places.queries + 1)[..., None]).to(x.dtype)
        averaged = self.feed_forward(means)
        input_gate, forget_gate = torch.sigmoid(self.gates(torch.cat([x, averaged], dim=-1))).chunk(2, dim=-1)
        gated: Tensor = input_gate * x + forget_gate * averaged
        return gated


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Sums over a sentence lose too much in 16 bits."""
    return torch.promote_types(dtype, torch.float32)
