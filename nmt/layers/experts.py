"""A sparsely gated mixture of experts: Shazeer et al. 2017, arXiv:1701.06538.

Shapes: n tokens, D width, F inner width, E experts, k experts a token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.linear import at_least_float32


@dataclass(frozen=True)
class Routing:
    """Which experts read which token, and what the balancing losses need to know."""

    experts: Tensor  # [n, k] ids
    weights: Tensor  # [n, k] positive, sum to 1
    gates: Tensor  # [n, E] G(x): the same weights, zero where an expert is not chosen
    load: Tensor  # [n, E] P(x, i): the probability that an expert would be chosen under other noise


LEAST_SPREAD = 1e-6  # what a difference of scores is divided by: with less the gradient would be 0 times infinity


class NoisyTopK(nn.Module):
    """G(x) = softmax(KeepTopK(H(x), k)), H(x)_i = (x W_g)_i + N(0, 1) softplus((x W_noise)_i): equations 3 to 5.

    Both matrices start at zero, so that all experts are equally likely. The noise is there in training alone.
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
        load = torch.special.ndtr((clean - to_beat) / spread.clamp(min=LEAST_SPREAD))
        return Routing(experts, weights, gates, load)

    def _product(self, x: Tensor, matrix: Tensor) -> Tensor:
        """In no fewer than 32 bits: in 16 many experts would be equally good."""
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(at_least_float32(x), at_least_float32(matrix))


class Experts(nn.Module):
    """E feed-forward networks of one hidden layer, all in two batched products.

    Tokens are sorted by expert and padded to the busiest one: nothing is dropped, and an expert that nobody chose gets a
    gradient of zero.
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
        given = x.new_zeros(len(counts), int(counts.max()) if n else 0, x.size(1))
        given = given.index_put((expert, slot), x[order // k])  # [E, most, D]
        hidden = self.dropout(torch.relu(torch.baddbmm(self.inner_bias, given, self.inner)))
        answers = torch.baddbmm(self.outer_bias, hidden, self.outer)
        by_token = torch.empty_like(order).scatter_(0, order, torch.arange(n * k, device=x.device))
        answered = answers[expert, slot][by_token].view(n, k, x.size(1))
        return (answered * routing.weights[:, :, None]).sum(1).to(answers.dtype)


def squared_variation(values: Tensor) -> Tensor:
    """CV(v)^2 over the last axis: variance by squared mean, zero if all are equal (equations 7 and 11)."""
    mean = values.mean(-1)
    return values.var(-1, unbiased=False) / (mean**2 + 1e-10)


def tokens_by_sentence(values: Tensor, lengths: Tensor) -> Tensor:
    """Sums over the tokens of each sentence: [n, ...] in the order of the sentences -> [B, ...]"""
    sentence = torch.repeat_interleave(lengths, output_size=values.size(0))  # [n]
    return values.new_zeros(len(lengths), *values.shape[1:]).index_add(0, sentence, values)


def balance(usage: Tensor, importance_weight: float, load_weight: float) -> dict[str, Tensor]:
    """w CV(importance)^2 and w CV(load)^2 (equations 6 and 11), of usage [layers, 2, E], summed over the layers."""
    importance, load = squared_variation(usage).sum(0)
    return {"importance": importance_weight * importance, "load": load_weight * load}
