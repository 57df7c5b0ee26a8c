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


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss, likelihood and gradients, summed chunk by chunk in at least float32; the backward pass only scales them.

    What smoothing adds is linear in the scores, so it needs no pass over them: with the mean m of the rows of the
    weights, the loss is nll + e (score of the target - hidden m), and the e / V of the gradient is the same for all rows.
    """

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
        wide = torch.promote_types(dtype, torch.float32)
        nll, target_scores = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
        for_hidden, for_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=wide)
        for_bias = None if bias is None else torch.zeros_like(bias, dtype=wide)
        most = CHUNK_ELEMENTS.get(hidden.device.type, CHUNK_ELEMENTS_ELSEWHERE) // weight.size(0)
        size = eighths_below(max(16, most))  # one of the numbers that need no room
        for rows, chunk, goals in zip(*(torch.split(x, size) for x in (for_hidden, hidden, targets))):
            roomy = hidden.device.type == "cpu" and dtype != wide
            chunk = with_room(chunk, dtype) if roomy else chunk
            logits = half_product(chunk, weight, bias)[: len(goals)]  # [rows, V]
            target_scores += logits.gather(-1, goals[:, None]).sum(dtype=wide)
            log_probabilities = torch.log_softmax(logits, dim=-1, dtype=wide)
            nll -= log_probabilities.gather(-1, goals[:, None]).sum()
            if not gradients:
                continue
            # d loss / d logits = softmax - (1 - e) [at the target]; what smoothing takes from every piece alike follows.
            gradient = log_probabilities.exp_()
            gradient.scatter_add_(-1, goals[:, None], gradient.new_full((len(goals), 1), label_smoothing - 1))
            if for_bias is not None:
                for_bias += gradient.sum(0)
            if roomy:
                gradient = with_room(gradient, dtype)
                rows.copy_(half_product(gradient, weight.t())[: len(goals)])
            else:
                gradient = gradient.to(dtype)
                torch.mm(gradient, weight, out=rows)
            if dtype == wide:
                for_weight.addmm_(gradient.t(), chunk)
            else:
                for_weight += half_product(gradient.t(), chunk.t())
        loss = nll.clone()
        if label_smoothing:
            total, mean = hidden.sum(0, dtype=wide), weight.mean(0, dtype=wide)
            scores = target_scores - total @ mean
            if bias is not None:
                scores = scores - hidden.size(0) * bias.mean(dtype=wide)
            loss = nll + label_smoothing * scores
            if gradients:
                share = label_smoothing / weight.size(0)
                for_hidden -= label_smoothing * mean
                for_weight -= share * total
                if for_bias is not None:
                    for_bias -= share * hidden.size(0)
        if gradients:
            ctx.save_for_backward(for_hidden, for_weight, for_bias)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """In float32 first: the scale of a loss in float16 would overflow there."""
        scaled = [
            None if gradient is None else (gradient.to(upstream[0].dtype) * upstream[0]).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        ]
        return *scaled, None, None, None, None
