"""The position-wise feed-forward network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt.modules.dropout import Dropout


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2: Vaswani et al. 2017, equation 2. [..., D] -> [..., D]

    The paper does not say how the weights start. torch's own way, uniform within 1 / sqrt(inputs), is smaller than
    Xavier's and learns faster under post-norm (docs/benchmarks.md).
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        """``dropout`` applies to the inner activations."""
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.outer(self.dropout(torch.relu(self.inner(x))))
        return projected
