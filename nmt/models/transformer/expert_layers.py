"""Layers of the Transformer whose feed-forward network is a mixture of experts: Shazeer et al. 2017 in Vaswani et al. 2017.

Shapes: B sentences, T positions of either side, n real positions of all sentences, D model width, E experts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt.layers.experts import Experts, NoisyTopK
from nmt.models.transformer.layers import DecoderLayer, EncoderLayer, Record
from nmt.models.transformer.residual import Residual


class ExpertFeedForward(nn.Module):
    """A gate and its experts in place of one feed-forward network. Padding is not routed: it comes out as zeros."""

    def __init__(self, gating: NoisyTopK, experts: Experts) -> None:
        super().__init__()
        self.gating = gating
        self.experts = experts

    def forward(self, x: Tensor, record: Record) -> Tensor:
        """[B, T, D] -> [B, T, D]; ``record`` receives each token's part [n, 2, E] in the experts' importance and load."""
        if record.lengths is None:
            mixed = self._mix(x.flatten(0, 1), record)
            return mixed.view_as(x)
        real = torch.arange(x.size(1), device=x.device) < record.lengths[:, None]  # [B, T]
        mixed = self._mix(x[real], record)
        return mixed.new_zeros(x.shape).masked_scatter(real[:, :, None], mixed)

    def _mix(self, tokens: Tensor, record: Record) -> Tensor:
        """[n, D] -> [n, D]"""
        routing = self.gating(tokens)
        record.usage.append(torch.stack([routing.gates, routing.load], dim=1))
        mixed: Tensor = self.experts(tokens, routing)
        return mixed


class ExpertEncoderLayer(EncoderLayer):
    """Self-attention and a mixture of experts."""

    feed_forward: ExpertFeedForward
    flat = False  # each sentence's share in the experts is asked for

    def feed(self, x: Tensor, record: Record) -> Tensor:
        return _fed(self.feed_forward_residual, self.feed_forward, x, record)


class ExpertDecoderLayer(DecoderLayer):
    """Self-attention, attention over the memory, and a mixture of experts."""

    feed_forward: ExpertFeedForward
    flat = False  # each sentence's share in the experts is asked for

    def feed(self, x: Tensor, record: Record) -> Tensor:
        return _fed(self.feed_forward_residual, self.feed_forward, x, record)


def _fed(residual: Residual, feed_forward: ExpertFeedForward, x: Tensor, record: Record) -> Tensor:
    fed: Tensor = residual(x, lambda y: feed_forward(y, record))
    return fed
