"""Maximum likelihood: the cross-entropy of every target piece."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from nmt.criterions import Criterion, criterions
from nmt.criterions.cross_entropy_config import CrossEntropyConfig
from nmt.errors import UsageError, did_you_mean
from nmt.interface import Batch, DecoderOutput, EncoderDecoder, LossReport
from nmt.layers.linear_cross_entropy import linear_cross_entropy, smoothed_cross_entropy


@criterions.register("cross_entropy", CrossEntropyConfig)
class TokenCrossEntropy(Criterion):
    """The sum over target tokens, to be divided by their number; the model's auxiliary means are added per token."""

    def __init__(self, config: CrossEntropyConfig) -> None:
        super().__init__()
        self.label_smoothing = config.label_smoothing
        self.auxiliary_weights = config.auxiliary_weights

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        decoded = model(batch)
        loss, nll = token_sums(model, decoded.hidden, batch.targets, self.label_smoothing)
        auxiliary = weighted_auxiliary(self.auxiliary_weights, decoded, batch.num_tokens)
        return token_report(batch, loss, nll, auxiliary)


def token_sums(model: EncoderDecoder, hidden: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """The smoothed loss and the negative log-likelihood of targets [M], summed; the second carries no gradient."""
    linear = model.output.linear()
    if linear is None:
        return smoothed_cross_entropy(model.output.logits(hidden), targets, label_smoothing)
    return linear_cross_entropy(hidden, *linear, targets, label_smoothing, model.output.product_type)


def weighted_auxiliary(weights: Mapping[str, float], decoded: DecoderOutput, denominator: int) -> dict[str, Tensor]:
    """The model's auxiliary losses: weight x mean x denominator, so that the division leaves weight x mean."""
    for name in weights:
        if name not in decoded.auxiliary:
            raise UsageError(
                f"criterion.auxiliary_weights names '{name}', but the model reports "
                f"{', '.join(decoded.auxiliary) or 'no auxiliary loss'}{did_you_mean(name, decoded.auxiliary)}"
            )
    return {name: weights.get(name, 1.0) * mean * denominator for name, mean in decoded.auxiliary.items()}


def token_report(batch: Batch, loss: Tensor, nll: Tensor, auxiliary: Mapping[str, Tensor]) -> LossReport:
    """The report of a loss over target tokens, to which the auxiliary sums are added."""
    count = torch.full((), float(batch.num_tokens), device=loss.device)
    return LossReport(
        loss_sum=torch.stack([loss, *auxiliary.values()]).sum() if auxiliary else loss,
        nll_sum=nll,
        denominator=count,
        num_tokens=count,
        num_sentences=batch.num_sentences,
        auxiliary={name: value.detach() for name, value in auxiliary.items()},
    )
