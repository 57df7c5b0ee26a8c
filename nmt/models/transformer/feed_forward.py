"""The position-wise feed-forward networks. Shapes: D model width."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.linear import Linear


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2: Vaswani et al. 2017, equation 2. [..., D] -> [..., D]

    The paper does not say how the weights start. torch's own way, uniform within 1 / sqrt(inputs), is smaller than
    Xavier's and learns faster under post-norm (docs/benchmarks.md).
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        """``dropout`` applies to the inner activations."""
        super().__init__()
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.outer(self.dropout(torch.relu(self.inner(x))))
        return projected


class GatedFeedForward(nn.Module):
    """(activation(x W) * x V) W2: Shazeer 2020, arXiv:2002.05202, equations 5 and 6. [..., D] -> [..., D]

    Without biases, as in the paper. There are three matrices instead of two: 2/3 of the inner width has the parameters
    of the plain network.
    """

    def __init__(self, activation: Callable[[Tensor], Tensor], d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        """``dropout`` applies to the gated inner activations."""
        super().__init__()
        self.activation = activation
        self.inner = Linear(d_model, 2 * d_ff, bias=False)  # rows: W, then V
        self.outer = Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inner(x).chunk(2, dim=-1)
        projected: Tensor = self.outer(self.dropout(self.activation(gate) * value))
        return projected
