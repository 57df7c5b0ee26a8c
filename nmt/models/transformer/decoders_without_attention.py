"""Decoder sublayers whose cost of a step does not depend on its position: average attention and SSRU.

Shapes: B sentences, K beam, N = B*K hypotheses, T target positions, D model width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nmt.layers.linear import Linear, at_least_float32
from nmt.models.transformer.autoregression import Autoregression, LayerCache
from nmt.models.transformer.layers import FeedForward
from nmt.models.transformer.mask import Mask, WeightRecord


@dataclass
class RecurrentCache(LayerCache):
    """One vector for each hypothesis: the sum of its inputs, or its cell."""

    vector: Tensor  # [N, D] in float32 or wider: sums over a sentence need the precision


class AverageAttention(Autoregression):
    """Average attention: Zhang et al. 2018, arXiv:1805.00631, equations 1 to 5.

    g_j = FFN(1/j sum_{k<=j} y_k); i_j, f_j = sigmoid(W [y_j; g_j]); h_j = i_j * y_j + f_j * g_j. ``Residual`` applies the
    residual connection and the norm. The FFN is separate from the layer's, with the same inner width.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.d_model = d_model
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.gates = Linear(2 * d_model, 2 * d_model, bias=False)

    def forward(self, x: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        return self._gated(x, at_least_float32(x).cumsum(1), mask)

    def start(self, sentences: int, beam: int, like: Tensor) -> RecurrentCache:
        return RecurrentCache(at_least_float32(like.new_zeros(sentences * beam, self.d_model)))

    def step(self, x: Tensor, cache: RecurrentCache, mask: Mask) -> tuple[Tensor, LayerCache]:
        totals = cache.vector.view_as(x) + x
        return self._gated(x, totals, mask), RecurrentCache(totals.flatten(0, 1))

    def _gated(self, x: Tensor, totals: Tensor, mask: Mask) -> Tensor:
        """x and its cumulative sums [B, T, D] -> [B, T, D]"""
        assert mask.positions is not None
        means = (totals / (mask.positions.queries + 1)[..., None]).to(x.dtype)
        averaged = self.feed_forward(means)
        input_gate, forget_gate = torch.sigmoid(self.gates(torch.cat([x, averaged], dim=-1))).chunk(2, dim=-1)
        return input_gate * x + forget_gate * averaged


class SSRU(Autoregression):
    """f_t = sigmoid(W_f x_t + b_f), c_t = f_t * c_{t-1} + (1 - f_t) * W x_t, o_t = relu(c_t).

    The simpler simple recurrent unit: Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural
    Machine Translation". No gate depends on the state, so all matrix products of a sequence are computed at once; the
    recurrence is elementwise.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.forget = Linear(d_model, d_model)
        self.input = Linear(d_model, d_model, bias=False)
        for linear in (self.forget, self.input):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.forget.bias)

    def forward(self, x: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        cells = _LinearRecurrence.apply(*self._gated(x))  # type: ignore[no-untyped-call]
        return torch.relu(cells).to(x.dtype)

    def start(self, sentences: int, beam: int, like: Tensor) -> RecurrentCache:
        return RecurrentCache(at_least_float32(like.new_zeros(sentences * beam, self.d_model)))

    def step(self, x: Tensor, cache: RecurrentCache, mask: Mask) -> tuple[Tensor, LayerCache]:
        kept, added = self._gated(x.flatten(0, 1))
        cell = torch.addcmul(added, kept, cache.vector)
        return torch.relu(cell).view(x.shape).to(x.dtype), RecurrentCache(cell)

    def _gated(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[..., D] -> f and (1 - f) * W x, in float32 or wider"""
        inputs = at_least_float32(self.input(x))
        kept = torch.sigmoid(self.forget(x).to(inputs.dtype))
        return kept, torch.addcmul(inputs, kept, inputs, value=-1)


class _LinearRecurrence(torch.autograd.Function):
    """c_t = a_t * c_{t-1} + b_t along axis 1. The gradient is the same recurrence, backwards in time."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, inputs: Tensor) -> Tensor:
        cells = recurrence(factors, inputs)
        ctx.save_for_backward(factors, cells)
        return cells

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        factors, cells = ctx.saved_tensors
        # g_t = gradient_t + a_{t+1} * g_{t+1}; the factor of the last position is not used.
        later = factors.flip(1).roll(1, dims=1)
        for_inputs = recurrence(later, gradient.flip(1)).flip(1)
        for_factors = torch.zeros_like(factors)
        torch.mul(for_inputs[:, 1:], cells[:, :-1], out=for_factors[:, 1:])
        return for_factors, for_inputs


def recurrence(factors: Tensor, inputs: Tensor) -> Tensor:
    """c_t = factors_t * c_{t-1} + inputs_t with c_{-1} = 0; all [B, T, D].

    A CPU computes it position by position, which takes a tenth of the time of doubling for 30 positions. On other devices
    a kernel launch costs more than its arithmetic, and doubling launches log T kernels instead of T.
    """
    return by_position(factors, inputs) if inputs.device.type == "cpu" else by_doubling(factors, inputs)


def by_position(factors: Tensor, inputs: Tensor) -> Tensor:
    cells = torch.empty_like(inputs)
    cells[:, 0] = inputs[:, 0]
    for t in range(1, inputs.size(1)):
        torch.addcmul(inputs[:, t], factors[:, t], cells[:, t - 1], out=cells[:, t])
    return cells


def by_doubling(factors: Tensor, inputs: Tensor) -> Tensor:
    """After the iteration with some span, each position includes the last 2 * span positions."""
    span = 1
    while span < inputs.size(1):
        combined = torch.addcmul(inputs[:, span:], factors[:, span:], inputs[:, :-span])
        inputs = torch.cat([inputs[:, :span], combined], dim=1)
        factors = torch.cat([factors[:, :span], factors[:, span:] * factors[:, :-span]], dim=1)
        span *= 2
    return inputs
