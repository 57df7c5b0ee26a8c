"""Cross-entropy of a linear output layer, without the scores of a whole batch in memory.

The scores [M, V] would be the largest tensor of a training step. The forward pass computes the scores of a chunk of rows,
their loss and their gradient, and then frees the scores.

Shapes: P passes, M real target positions, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt.layers.linear import eighths_below, half_product, with_zero_rows

# Scores of one chunk: few on a CPU, to stay in its cache; many elsewhere, for large kernels.
CHUNK_ELEMENTS = {"cpu": 2**22}
CHUNK_ELEMENTS_ELSEWHERE = 2**26


def weighted_sum(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the sum over M of values [M, ...], each times its weight [M]; None: all weights are 1."""
    if weights is not None:  # autocast would compute a product of matrices in half precision
        values = weights.to(values.dtype).view(-1, *[1] * (values.dim() - 1)) * values
    return values.sum(0)


def smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, label_smoothing: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the weighted sums over M of the smoothed loss and of the negative log-likelihood (nats) of logits [M, V].

    The target distribution is (1 - e) at the target plus e / V everywhere (Szegedy et al. 2016; torch's definition).
    The second sum carries no gradient.
    """
    log_probabilities = torch.log_softmax(logits, dim=-1)
    nll = weighted_sum(-log_probabilities.gather(-1, targets[:, None]).squeeze(-1), weights)
    if label_smoothing == 0.0:
        return nll, nll.detach()
    uniform = weighted_sum(-log_probabilities.mean(-1), weights)
    return (1 - label_smoothing) * nll + label_smoothing * uniform, nll.detach()


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    label_smoothing: float,
    product_type: torch.dtype | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute ``smoothed_cross_entropy`` of ``F.linear(hidden, weight, bias)``, hidden [M, D], in chunks of rows.

    Differentiable once. Products are in ``product_type`` (None: autocast's data type if enabled), sums in float32.
    """
    loss, nll, _ = _losses(hidden[None], weight, bias, targets, label_smoothing, 0.0, product_type, weights)
    return loss, nll


def linear_agreement(
    passes: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    label_smoothing: float,
    divergence_weight: float,
    product_type: torch.dtype | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same sums over two passes [2, M, D], and the divergence of the passes.

    The divergence is the mean of KL(first || second) and KL(second || first), summed over M. The loss includes it
    ``divergence_weight`` times; the third result carries no gradient.
    """
    return _losses(passes, weight, bias, targets, label_smoothing, divergence_weight, product_type, weights)


def _losses(
    passes: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    label_smoothing: float,
    divergence_weight: float,
    product_type: torch.dtype | None,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    device = passes.device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    dtype = product_type or autocast or passes.dtype
    with torch.autocast(device, enabled=False):
        losses: tuple[Tensor, Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
            passes, weight, bias, targets, label_smoothing, divergence_weight, dtype, torch.is_grad_enabled(), weights
        )
    return losses


def _divergence_and_gradient_(log_probabilities: Tensor, weight: float) -> Tensor:
    """Return the divergence D [m] of two passes, 0 for one pass; replace log-probabilities [P, m, V] by a gradient.

    It is the gradient of the log-normalizers and of ``weight`` times D with respect to the scores.

    With p and q the two distributions and d = log p - log q, D = (KL(p || q) + KL(q || p)) / 2 has the gradient
    (p (d - KL(p || q)) + p - q) / 2 for the scores of p; for those of q, exchange p and q.
    """
    if len(log_probabilities) == 1:
        return log_probabilities.exp_().new_zeros(log_probabilities.size(1))
    half = weight / 2
    difference = log_probabilities[0] - log_probabilities[1]  # [m, V]
    difference.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf)  # a token with probability 0 in both
    first, second = log_probabilities.exp_()
    to_first = torch.linalg.vecdot(first, difference)[:, None]  # [m, 1] KL(p || q)
    to_second = -torch.linalg.vecdot(second, difference)[:, None]
    difference *= half
    of_first = (difference + (1 + half - half * to_first)).mul_(first).sub_(second, alpha=half)
    of_second = difference.neg_().add_(1 + half - half * to_second).mul_(second).sub_(first, alpha=half)
    torch.stack([of_first, of_second], out=log_probabilities)
    return (to_first + to_second).squeeze(1) / 2


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss, likelihood and gradients, summed over chunks in float32 or wider; the backward pass only scales them.

    The term of label smoothing is linear in the scores: with the mean m of the rows of the weights, the loss is
    nll + e (score of the target - hidden m), and the e / V of the gradient is the same for all rows.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        divergence_weight: float,
        dtype: torch.dtype,
        gradients: bool,
        weights: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        wide, passes = torch.promote_types(dtype, torch.float32), len(hidden)
        weights = None if weights is None else weights.to(wide)
        nll, target_scores, divergence = (hidden.new_zeros((), dtype=wide) for _ in range(3))
        for_hidden, for_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=wide)
        for_bias = None if bias is None else torch.zeros_like(bias, dtype=wide)
        most = CHUNK_ELEMENTS.get(hidden.device.type, CHUNK_ELEMENTS_ELSEWHERE) // weight.size(0)
        size = eighths_below(max(16, most // passes))  # a size that needs no added rows
        of_rows = (torch.split(x, size, dim=-2) for x in (for_hidden, hidden))
        for number, (rows, chunk, goals) in enumerate(zip(*of_rows, torch.split(targets, size))):
            chunk, goals = chunk.reshape(-1, chunk.size(-1)), goals.repeat(passes)
            one_pass = None if weights is None else weights[number * size : (number + 1) * size]  # [m]
            shares = None if one_pass is None else one_pass.repeat(passes)  # [P m]
            roomy = hidden.device.type == "cpu" and dtype != wide
            chunk = with_zero_rows(chunk, dtype) if roomy else chunk
            logits = half_product(chunk, weight, bias)[: len(goals)]  # [P rows, V]
            target_scores += weighted_sum(logits.gather(-1, goals[:, None]).squeeze(-1).to(wide), shares)
            log_probabilities = torch.log_softmax(logits, dim=-1, dtype=wide)
            nll -= weighted_sum(log_probabilities.gather(-1, goals[:, None]).squeeze(-1), shares)
            if gradients or passes > 1:
                of_passes = log_probabilities.view(passes, -1, weight.size(0))
                divergence += weighted_sum(_divergence_and_gradient_(of_passes, divergence_weight), one_pass)
            if not gradients:
                continue
            # d loss / d logits = softmax - (1 - e) [at the target]; the e / V for all tokens follows below.
            gradient = log_probabilities
            gradient.scatter_add_(-1, goals[:, None], gradient.new_full((len(goals), 1), label_smoothing - 1))
            if shares is not None:
                gradient *= shares[:, None]
            if for_bias is not None:
                for_bias += gradient.sum(0)
            if roomy:
                gradient = with_zero_rows(gradient, dtype)
                rows.copy_(half_product(gradient, weight.t())[: len(goals)].view_as(rows))
            else:
                gradient = gradient.to(dtype)
                rows.copy_((gradient @ weight).view_as(rows))
            if dtype == wide:
                for_weight.addmm_(gradient.t(), chunk)
            else:
                for_weight += half_product(gradient.t(), chunk.t())
        loss = nll + divergence_weight * divergence
        if label_smoothing:
            total = weighted_sum(hidden.sum(0, dtype=wide), weights)
            mean, count = weight.mean(0, dtype=wide), len(targets) if weights is None else weights.sum()
            scores = target_scores - total @ mean
            if bias is not None:
                scores = scores - passes * count * bias.mean(dtype=wide)
            loss = loss + label_smoothing * scores
            if gradients:
                share = label_smoothing / weight.size(0)
                for_hidden -= label_smoothing * (mean if weights is None else weights[:, None] * mean)
                for_weight -= share * total
                if for_bias is not None:
                    for_bias -= share * passes * count
        if gradients:
            ctx.save_for_backward(for_hidden, for_weight, for_bias)
        ctx.mark_non_differentiable(nll, divergence)
        return loss, nll, divergence

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Scale in float32: the loss scale of float16 training would overflow in float16."""
        scaled = [
            None if gradient is None else (gradient.to(upstream[0].dtype) * upstream[0]).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        ]
        return *scaled, None, None, None, None, None, None
