"""Cross-entropy of a linear output layer without ever holding the scores of a whole batch.

Scores of all M positions over V pieces are by far the largest tensor of a training step. Here they exist for a few
rows at a time: the forward pass computes a chunk's scores, its loss and at once its gradient, and drops them.

Shapes: M real target positions, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt.layers.linear import eighths_below, half_product, with_room

# Scores of one chunk: on a CPU they should not leave the cache for good, elsewhere the kernels should be large.
CHUNK_ELEMENTS = {"cpu": 2**22}
CHUNK_ELEMENTS_ELSEWHERE = 2**26


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums over M of the smoothed loss and of the plain negative log-likelihood (nats) of logits [M, V].

    The target distribution is (1 - e) at the target plus e / V everywhere (Szegedy et al. 2016; torch's definition).
    The second sum carries no gradient.
    """
    log_probabilities = torch.log_softmax(logits, dim=-1)
    nll = -log_probabilities.gather(-1, targets[:, None]).sum()
    if label_smoothing == 0.0:
        return nll, nll.detach()
    uniform = -log_probabilities.mean(-1).sum()
    return (1 - label_smoothing) * nll + label_smoothing * uniform, nll.detach()


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    label_smoothing: float,
    product_type: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """``smoothed_cross_entropy`` of ``F.linear(hidden, weight, bias)``, hidden [M, D], in chunks of rows.

    Differentiable once. The products are in ``product_type``, or in autocast's where it is on, the sums in float32.
    """
    device = hidden.device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    dtype = product_type or autocast or hidden.dtype
    with torch.autocast(device, enabled=False):
        loss, nll = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, targets, label_smoothing, dtype, torch.is_grad_enabled()
        )
    return loss, nll


def _rows_per_chunk(vocabulary_size: int, device: str) -> int:
    """One of the numbers that need no room."""
    return eighths_below(max(16, CHUNK_ELEMENTS.get(device, CHUNK_ELEMENTS_ELSEWHERE) // vocabulary_size))


class _Sums:
    """Loss, likelihood and gradients, summed chunk by chunk in at least float32.

    What smoothing adds is linear in the scores, so it needs no pass over them: with the mean m of the rows of the
    weights, the loss is nll + e (score of the target - hidden m), and the e / V of the gradient is the same for all rows.
    """

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, label_smoothing: float) -> None:
        self.dtype = dtype = torch.promote_types(hidden.dtype, torch.float32)
        self.weight, self.bias, self.label_smoothing = weight, bias, label_smoothing
        self._roomy = hidden.device.type == "cpu" and hidden.dtype != dtype
        self.nll, self.target_scores = hidden.new_zeros((), dtype=dtype), hidden.new_zeros((), dtype=dtype)
        self.hidden_gradient = torch.empty_like(hidden)
        self.weight_gradient = torch.zeros_like(weight, dtype=dtype)
        self.bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=dtype)

    def add(self, rows: slice, hidden: Tensor, targets: Tensor, gradients: bool) -> None:
        if self._roomy:
            hidden = with_room(hidden, hidden.dtype)
        logits = half_product(hidden, self.weight, self.bias)[: len(targets)]  # [rows, V]
        self.target_scores += logits.gather(-1, targets[:, None]).sum(dtype=self.dtype)
        log_probabilities = torch.log_softmax(logits, dim=-1, dtype=self.dtype)
        self.nll -= log_probabilities.gather(-1, targets[:, None]).sum()
        if gradients:
            self._add_gradients(rows, hidden, targets, log_probabilities)

    def _add_gradients(self, rows: slice, hidden: Tensor, targets: Tensor, log_probabilities: Tensor) -> None:
        """d loss / d logits = softmax - (1 - e) [at the target], the rest follows in ``smoothed``"""
        gradient = log_probabilities.exp_()
        gradient.scatter_add_(-1, targets[:, None], gradient.new_full((len(targets), 1), self.label_smoothing - 1))
        if self.bias_gradient is not None:
            self.bias_gradient += gradient.sum(0)
        if self._roomy:
            gradient = with_room(gradient, hidden.dtype)
            self.hidden_gradient[rows] = half_product(gradient, self.weight.t())[: len(targets)]
        else:
            gradient = gradient.to(hidden.dtype)
            torch.mm(gradient, self.weight, out=self.hidden_gradient[rows])
        if hidden.dtype == self.dtype:
            self.weight_gradient.addmm_(gradient.t(), hidden)
        else:
            self.weight_gradient += half_product(gradient.t(), hidden.t())

    def smoothed(self, hidden: Tensor, gradients: bool) -> Tensor:
        """The loss; adds to the gradients what smoothing takes from every piece alike."""
        if not self.label_smoothing:
            return self.nll.clone()
        total = hidden.sum(0, dtype=self.dtype)
        mean = self.weight.mean(0, dtype=self.dtype)
        scores = self.target_scores - total @ mean
        if self.bias is not None:
            scores = scores - hidden.size(0) * self.bias.mean(dtype=self.dtype)
        if gradients:
            share = self.label_smoothing / self.weight.size(0)
            self.hidden_gradient -= self.label_smoothing * mean
            self.weight_gradient -= share * total
            if self.bias_gradient is not None:
                self.bias_gradient -= share * hidden.size(0)
        return self.nll + self.label_smoothing * scores


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are ready after the forward pass; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        dtype: torch.dtype,
        gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        sums = _Sums(hidden, weight, bias, label_smoothing)
        size = _rows_per_chunk(weight.size(0), hidden.device.type)
        for first in range(0, hidden.size(0), size):
            rows = slice(first, min(first + size, hidden.size(0)))
            sums.add(rows, hidden[rows], targets[rows], gradients)
        loss = sums.smoothed(hidden, gradients)
        if gradients:
            ctx.save_for_backward(sums.hidden_gradient, sums.weight_gradient, sums.bias_gradient)
        ctx.mark_non_differentiable(sums.nll)
        return loss, sums.nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """In float32 first: the scale of a loss in float16 would overflow there."""
        scaled = [
            None if gradient is None else (gradient.to(upstream[0].dtype) * upstream[0]).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        ]
        return *scaled, None, None, None, None
