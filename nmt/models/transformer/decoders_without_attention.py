"""Decoder sublayers without self-attention, whose step costs the same however long the sentence: average attention, SSRU.

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
from nmt.models.transformer.mask import Mask, Weights


@dataclass
class Carried(LayerCache):
    """One vector a row, however long the sentence: the sum of all inputs so far, or a cell."""

    vector: Tensor  # [N, D] in float32 at least: sums over a sentence lose too much in 16 bits


class AverageAttention(Autoregression):
    """The mean of all inputs up to a position, g_j = FFN(1/j sum_{k<=j} y_k), behind gates: Zhang et al. 2018,
    arXiv:1805.00631, equations 1 to 5.

    i_j, f_j = sigmoid(W [y_j; g_j]) and h_j = i_j * y_j + f_j * g_j; the residual connection and the norm of the paper
    are those of any sublayer. The FFN is the paper's own, of the model's inner width.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.d_model = d_model
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.gates = Linear(2 * d_model, 2 * d_model, bias=False)

    def forward(self, x: Tensor, mask: Mask, record: Weights = None) -> Tensor:
        return self._gated(x, at_least_float32(x).cumsum(1), mask)

    def start(self, sentences: int, beam: int, like: Tensor) -> Carried:
        return Carried(at_least_float32(like.new_zeros(sentences * beam, self.d_model)))

    def step(self, x: Tensor, cache: Carried, mask: Mask) -> tuple[Tensor, LayerCache]:
        totals = cache.vector.view_as(x) + x
        return self._gated(x, totals, mask), Carried(totals.flatten(0, 1))

    def _gated(self, x: Tensor, totals: Tensor, mask: Mask) -> Tensor:
        """x and the sums up to each position [B, T, D] -> [B, T, D]"""
        assert mask.places is not None
        means = (totals / (mask.places.queries + 1)[..., None]).to(x.dtype)
        averaged = self.feed_forward(means)
        input_gate, forget_gate = torch.sigmoid(self.gates(torch.cat([x, averaged], dim=-1))).chunk(2, dim=-1)
        return input_gate * x + forget_gate * averaged


class SSRU(Autoregression):
    """f_t = sigmoid(W_f x_t + b_f), c_t = f_t * c_{t-1} + (1 - f_t) * W x_t, o_t = relu(c_t).

    The simpler simple recurrent unit: Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural
    Machine Translation". No gate looks at the state, so all matrix products of a sequence are made at once; the
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

    def forward(self, x: Tensor, mask: Mask, record: Weights = None) -> Tensor:
        cells = _LinearRecurrence.apply(*self._gated(x))  # type: ignore[no-untyped-call]
        return torch.relu(cells).to(x.dtype)

    def start(self, sentences: int, beam: int, like: Tensor) -> Carried:
        return Carried(at_least_float32(like.new_zeros(sentences * beam, self.d_model)))

    def step(self, x: Tensor, cache: Carried, mask: Mask) -> tuple[Tensor, LayerCache]:
        kept, added = self._gated(x.flatten(0, 1))
        cell = torch.addcmul(added, kept, cache.vector)
        return torch.relu(cell).view(x.shape).to(x.dtype), Carried(cell)

    def _gated(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[..., D] -> f and (1 - f) * W x, in float32 at least"""
        inputs = at_least_float32(self.input(x))
        kept = torch.sigmoid(self.forget(x).to(inputs.dtype))
        return kept, torch.addcmul(inputs, kept, inputs, value=-1)


class _LinearRecurrence(torch.autograd.Function):
    """c_t = a_t * c_{t-1} + b_t along axis 1. The gradient is a recurrence of the same kind, backwards in time."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, inputs: Tensor) -> Tensor:
        cells = recurrence(factors, inputs)
        ctx.save_for_backward(factors, cells)
        return cells

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        factors, cells = ctx.saved_tensors
        # g_t = gradient_t + a_{t+1} * g_{t+1}; the factor of the last position multiplies nothing.
        later = factors.flip(1).roll(1, dims=1)
        for_inputs = recurrence(later, gradient.flip(1)).flip(1)
        for_factors = torch.zeros_like(factors)
        torch.mul(for_inputs[:, 1:], cells[:, :-1], out=for_factors[:, 1:])
        return for_factors, for_inputs


def recurrence(factors: Tensor, inputs: Tensor) -> Tensor:
    """c_t = factors_t * c_{t-1} + inputs_t with c_{-1} = 0; all [B, T, D].

    On the CPU position by position, which touches each number once: over sentences of 30 positions that takes a tenth
    of the time of doubling. Elsewhere a launch costs more than its arithmetic, and log T of them are better than T.
    """
    return by_position(factors, inputs) if inputs.device.type == "cpu" else by_doubling(factors, inputs)


def by_position(factors: Tensor, inputs: Tensor) -> Tensor:
    cells = torch.empty_like(inputs)
    cells[:, 0] = inputs[:, 0]
    for t in range(1, inputs.size(1)):
        torch.addcmul(inputs[:, t], factors[:, t], cells[:, t - 1], out=cells[:, t])
    return cells


def by_doubling(factors: Tensor, inputs: Tensor) -> Tensor:
    """After the round of a span each position has taken in the 2 * span positions up to itself."""
    span = 1
    while span < inputs.size(1):
        taken = torch.addcmul(inputs[:, span:], factors[:, span:], inputs[:, :-span])
        inputs = torch.cat([inputs[:, :span], taken], dim=1)
        factors = torch.cat([factors[:, :span], factors[:, span:] * factors[:, :-span]], dim=1)
        span *= 2
    return inputs
