"""A sparsely gated mixture of experts: Shazeer et al. 2017, arXiv:1701.06538.

Shapes: n tokens, D width, F inner width, E experts, k experts per token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.linear import at_least_float32
from nmt.layers.linear_cross_entropy import weighted_sum


@dataclass(frozen=True)
class Routing:
    """The experts of each token, and the statistics for the balancing losses."""

    experts: Tensor  # [n, k] ids
    weights: Tensor  # [n, k] positive, sum to 1
    gates: Tensor  # [n, E] G(x): the same weights, zero where an expert is not chosen
    load: Tensor  # [n, E] P(x, i): the probability that an expert would be chosen under fresh noise


MIN_SPREAD = 1e-6  # divisor of a difference of scores; a smaller one would give gradients of 0 times infinity


class NoisyTopK(nn.Module):
    """G(x) = softmax(KeepTopK(H(x), k)), H(x)_i = (x W_g)_i + N(0, 1) softplus((x W_noise)_i): equations 3 to 5.

    Both matrices are initialized to zero, so that all experts are equally likely. Noise is added in training only.
    """

    def __init__(self, width: int, num_experts: int, k: int) -> None:
        super().__init__()
        assert 1 <= k <= num_experts
        self.gate = nn.Parameter(torch.zeros(num_experts, width))
        self.noise = nn.Parameter(torch.zeros(num_experts, width))
        self.k = k

    def forward(self, x: Tensor) -> Routing:
        """[n, D]"""
        clean = self._product(x, self.gate)
        spread = F.softplus(self._product(x, self.noise))
        scores = clean + torch.randn_like(clean) * spread if self.training else clean  # [n, E]
        num_experts = scores.size(1)
        best = scores.topk(min(self.k + 1, num_experts), dim=1)
        experts = best.indices[:, : self.k]
        weights = best.values[:, : self.k].softmax(1)
        gates = torch.zeros_like(scores).scatter(1, experts, weights)
        if self.k == num_experts:
            return Routing(experts, weights, gates, torch.ones_like(gates))
        # An expert is chosen if it beats the k-th best of the others: equations 8 and 9.
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(1, experts, True)
        to_beat = torch.where(chosen, best.values[:, self.k, None], best.values[:, self.k - 1, None])
        load = torch.special.ndtr((clean - to_beat) / spread.clamp(min=MIN_SPREAD))
        return Routing(experts, weights, gates, load)

    def _product(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Compute in float32 or wider: in 16 bits many scores would be equal."""
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(at_least_float32(x), at_least_float32(matrix))


class Experts(nn.Module):
    """E feed-forward networks with one hidden layer, computed by two batched products.

    Tokens are sorted by expert and padded to the largest group. No token is dropped; unused experts get zero gradients.
    """

    def __init__(self, width: int, inner: int, num_experts: int, dropout: float = 0.0) -> None:
        """``dropout`` applies to the inner activations."""
        super().__init__()
        self.dropout = Dropout(dropout)
        self.inner = nn.Parameter(torch.empty(num_experts, width, inner).uniform_(-(width**-0.5), width**-0.5))
        self.inner_bias = nn.Parameter(torch.zeros(num_experts, 1, inner))
        self.outer = nn.Parameter(torch.empty(num_experts, inner, width).uniform_(-(inner**-0.5), inner**-0.5))
        self.outer_bias = nn.Parameter(torch.zeros(num_experts, 1, width))

    def forward(self, x: Tensor, routing: Routing) -> Tensor:
        """[n, D] -> [n, D]: sum over the chosen experts of G(x)_i E_i(x), equation 1."""
        n, k = routing.experts.shape
        chosen = routing.experts.flatten()  # [n k]
        order = chosen.argsort(stable=True)
        expert = chosen[order]
        counts = torch.bincount(chosen, minlength=self.inner.size(0))
        slot = torch.arange(n * k, device=x.device) - (counts.cumsum(0) - counts)[expert]
        inputs = x.new_zeros(len(counts), int(counts.max()) if n else 0, x.size(1))
        inputs = inputs.index_put((expert, slot), x[order // k])  # [E, most, D]
        hidden = self.dropout(torch.relu(torch.baddbmm(self.inner_bias, inputs, self.inner)))
        outputs = torch.baddbmm(self.outer_bias, hidden, self.outer)
        by_token = torch.empty_like(order).scatter_(0, order, torch.arange(n * k, device=x.device))
        of_tokens = outputs[expert, slot][by_token].view(n, k, x.size(1))
        return (of_tokens * routing.weights[:, :, None]).sum(1).to(outputs.dtype)


def squared_variation(values: Tensor) -> Tensor:
    """Return CV(v)^2 over the last axis, variance divided by squared mean: equations 7 and 11."""
    mean = values.mean(-1, keepdim=True)
    return (values / (mean + (mean == 0))).var(-1, unbiased=False)


def tokens_by_sentence(values: Tensor, lengths: Tensor) -> Tensor:
    """Sum over the tokens of each sentence: [n, ...] in sentence order -> [B, ...]"""
    sentence = torch.repeat_interleave(lengths, output_size=values.size(0))  # [n]
    return values.new_zeros(len(lengths), *values.shape[1:]).index_add(0, sentence, values)


def total_usage(usage: Tensor, weights: Tensor | None, lengths: Tensor | None = None) -> Tensor:
    """Sum the usage of sentences [B, ...], or of the tokens [n, ...] of sentences of ``lengths``. The usage of a sentence
    counts times its weight [B]; None: all are 1."""
    if weights is not None and lengths is not None:
        usage = tokens_by_sentence(usage, lengths)
    return weighted_sum(usage, weights)


def balance(usage: Tensor, importance_weight: float, load_weight: float) -> dict[str, Tensor]:
    """Return w CV(importance)^2 and w CV(load)^2 (equations 6 and 11) of usage [layers, 2, E], summed over layers."""
    importance, load = squared_variation(usage).sum(0)
    return {"importance": importance_weight * importance, "load": load_weight * load}
