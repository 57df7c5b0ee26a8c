"""Criterions over target tokens: cross-entropy, and terms added to it.

Shapes: B sentences, H heads, T target positions, M real ones, S source positions, P aligned pairs of positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from nmt.criterions import Criterion, CriterionParts, criterions
from nmt.criterions.chunked import by_rows, cross_entropy_of, log_probabilities, smoothed_nll, symmetric_divergence
from nmt.criterions.config import (
    CrossEntropyConfig,
    GuidedAlignmentConfig,
    LabelSmoothedCrossEntropyConfig,
    RDropConfig,
    WordDistillationConfig,
)
from nmt.data.batching.batch import ALIGNMENTS
from nmt.errors import UsageError, did_you_mean, quantity
from nmt.interface import AttentionMaps, AttentionRequest, Batch, DecoderOutput, EncoderDecoder, LossReport
from nmt.layers.linear_cross_entropy import (
    linear_agreement,
    linear_cross_entropy,
    smoothed_cross_entropy,
    weighted_sum,
)


@criterions.register("cross_entropy", CrossEntropyConfig)
@criterions.register("label_smoothed_cross_entropy", LabelSmoothedCrossEntropyConfig)
class TokenCrossEntropy(Criterion):
    """The sum over target tokens, each times its weight; the denominator is the sum of the weights: the number of tokens
    without weights. The model's auxiliary means are added times the denominator.

    With label smoothing: Szegedy et al. 2016; Vaswani et al. 2017, section 5.4.
    """

    def __init__(self, config: CrossEntropyConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        decoded = model(batch)
        loss, nll = token_sums(model, decoded.hidden, batch, self.config.label_smoothing)
        auxiliary = weighted_auxiliary(self.config.auxiliary_weights, decoded, total_weight(batch))
        return token_report(batch, loss, nll, auxiliary)


def token_sums(model: EncoderDecoder, hidden: Tensor, batch: Batch, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the weighted sums of the smoothed loss and the negative log-likelihood of the targets of a batch, whose hidden
    states are [M, D]; the second carries no gradient."""
    linear, targets, weights = model.output.linear(), batch.targets, batch.weights
    if linear is None:
        return smoothed_cross_entropy(model.output.logits(hidden), targets, label_smoothing, weights)
    return linear_cross_entropy(hidden, *linear, targets, label_smoothing, model.output.product_type, weights)


def total_weight(batch: Batch) -> int | Tensor:
    """Return the sum of the weights of the targets of a batch: their number without weights."""
    return batch.num_tokens if batch.weights is None else batch.weights.sum()


def weighted_auxiliary(
    weights: Mapping[str, float], decoded: DecoderOutput, denominator: int | Tensor
) -> dict[str, Tensor]:
    """Return the model's auxiliary losses, weight x mean x denominator; the trainer divides by the denominator."""
    for name in weights:
        if name not in decoded.auxiliary:
            raise UsageError(
                f"criterion.auxiliary_weights names '{name}', but the model reports "
                f"{', '.join(decoded.auxiliary) or 'no auxiliary loss'}{did_you_mean(name, decoded.auxiliary)}"
            )
    return {name: weights.get(name, 1.0) * mean * denominator for name, mean in decoded.auxiliary.items()}


def token_report(batch: Batch, loss: Tensor, nll: Tensor, auxiliary: Mapping[str, Tensor]) -> LossReport:
    """Return the report of a weighted loss over target tokens plus the auxiliary sums."""
    count = torch.full((), float(batch.num_tokens), device=loss.device)
    weight = count if batch.weights is None else batch.weights.sum()
    return LossReport(
        loss_sum=torch.stack([loss, *auxiliary.values()]).sum() if auxiliary else loss,
        nll_sum=nll,
        denominator=weight,
        num_tokens=count,
        weight=weight,
        num_sentences=batch.num_sentences,
        auxiliary={name: value.detach() for name, value in auxiliary.items()},
    )


@criterions.register("guided_alignment", GuidedAlignmentConfig)
class GuidedAlignment(TokenCrossEntropy):
    """Cross-entropy of the targets, plus weight times the cross-entropy of word alignments under the attention, per token.

    Chen et al. 2016, arXiv:1607.01628, with cross-entropy as the cost. A target token that is aligned to n source tokens
    gives each the probability 1/n; unaligned tokens are ignored. The attention that predicts a token is compared with the
    alignment of that token. A batch without alignments, as in validation, has no alignment loss.
    """

    config: GuidedAlignmentConfig

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        config, pairs = self.config, batch.extras.get(ALIGNMENTS)
        decoded = model(batch, None if pairs is None else AttentionRequest(("cross",)))
        loss, nll = token_sums(model, decoded.hidden, batch, config.label_smoothing)
        auxiliary = weighted_auxiliary(config.auxiliary_weights, decoded, total_weight(batch))
        if pairs is not None:
            aligned = _alignment_loss(self._attention(decoded.attention), pairs, batch)
            auxiliary["alignment"] = config.alignment_weight * aligned
        return token_report(batch, loss, nll, auxiliary)

    def _attention(self, attention: AttentionMaps | None) -> Tensor:
        """Return the mean [B, T, S] over the guided heads."""
        layers = () if attention is None else attention.maps.get("cross", ())
        if not layers:
            raise UsageError(
                "criterion guided_alignment needs a model with attention to the source; choose another --criterion or --arch"
            )
        layer = len(layers) if self.config.alignment_layer is None else self.config.alignment_layer
        if layer > len(layers):
            raise UsageError(
                f"criterion.alignment_layer={layer}, but the model reports attention of {len(layers)} decoder layers "
                f"(--alignment-layer)"
            )
        heads, maps = self.config.alignment_heads, layers[layer - 1]  # [B, H, T, S]
        if heads is not None and heads > maps.size(1):
            raise UsageError(
                f"criterion.alignment_heads={heads}, but the attention of layer {layer} has "
                f"{quantity(maps.size(1), 'head')} (--alignment-heads)"
            )
        return maps[:, :heads].mean(1)


def _alignment_loss(attention: Tensor, pairs: Tensor, batch: Batch) -> Tensor:
    """Return the weighted sum over target positions of - sum_s share * log attention; attention [B, T, S], pairs [P, 3]."""
    sentence, source, target = pairs.unbind(1)
    position = sentence * attention.size(1) + target  # [P]
    kind = torch.promote_types(attention.dtype, torch.float32)  # small weights underflow in half precision
    links = torch.zeros(attention.size(0) * attention.size(1), dtype=kind, device=attention.device)
    shares = links.index_add_(0, position, torch.ones_like(position, dtype=links.dtype))[position].reciprocal()  # [P]
    if batch.weights is not None:
        shares = shares * batch.weights[batch.target_offsets[sentence] + target - batch.started * (sentence + 1)]
    chosen = attention[sentence, target, source].to(kind)
    return -(shares * chosen.clamp(min=torch.finfo(torch.float32).tiny).log()).sum()


@criterions.register("r_drop", RDropConfig)
class RDrop(TokenCrossEntropy):
    """R-Drop, consistency of two passes with different dropout: Liang et al. 2021, arXiv:2106.14448, section 2.1.

    The sum of both passes' cross-entropies and alpha times the mean of KL(P1 || P2) and KL(P2 || P1), per token. As in the
    paper, the loss includes both cross-entropies; without dropout it is twice the cross-entropy. The reported likelihood and
    perplexity are means of the two passes.
    """

    config: RDropConfig

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        config, passes = self.config, (model(batch), model(batch))
        loss, nll, divergence = agreement_sums(
            model,
            torch.stack([decoded.hidden for decoded in passes]),
            batch,
            config.label_smoothing,
            config.divergence_weight,
        )
        auxiliary = dict[str, Tensor]()
        for decoded in passes:
            for name, value in weighted_auxiliary(config.auxiliary_weights, decoded, total_weight(batch)).items():
                auxiliary[name] = auxiliary[name] + value if name in auxiliary else value
        report = token_report(batch, loss, nll / 2, auxiliary)
        shown = {"divergence": config.divergence_weight * divergence, **report.auxiliary}
        return dataclasses.replace(report, auxiliary=shown)


def agreement_sums(
    model: EncoderDecoder, passes: Tensor, batch: Batch, label_smoothing: float, divergence_weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``token_sums`` of two passes [2, M, D], and the weighted sum over targets of the mean of both divergences.

    The loss includes ``divergence_weight`` times the divergence.
    """
    linear = model.output.linear()
    if linear is not None:
        product_type = model.output.product_type
        return linear_agreement(
            passes, *linear, batch.targets, label_smoothing, divergence_weight, product_type, batch.weights
        )

    def of_tokens(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
        """[m, 3] smoothed loss of both, likelihood of both, mean divergence."""
        scores = [log_probabilities(model.output.logits(hidden)) for hidden in (first, second)]
        loss = torch.stack([smoothed_nll(predicted, targets, label_smoothing) for predicted in scores]).sum(0)
        nll = torch.stack([smoothed_nll(predicted.detach(), targets, 0.0) for predicted in scores]).sum(0)
        return torch.stack([loss, nll, symmetric_divergence(*scores) / 2], 1)

    loss, nll, divergence = weighted_sum(by_rows(of_tokens, *passes, batch.targets), batch.weights)
    return loss + divergence_weight * divergence, nll.detach(), divergence.detach()


@criterions.register("word_distillation", WordDistillationConfig)
class WordDistillation(TokenCrossEntropy):
    """Word-level knowledge distillation: Kim and Rush 2016, arXiv:1606.07947, sections 2.2 and 3.1:
    (1 - weight) * cross-entropy of the targets + weight * cross-entropy of the teacher's distributions; per token."""

    config: WordDistillationConfig

    def __init__(self, config: WordDistillationConfig, parts: CriterionParts) -> None:
        super().__init__(config)
        self._teacher = (parts.teacher,)  # a tuple hides the module from training, moving and saving

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        config, (teacher,) = self.config, self._teacher
        decoded = model(batch)
        with torch.no_grad():
            teacher_hidden = teacher(batch).hidden

        def of_tokens(hidden: Tensor, teacher_hidden: Tensor, targets: Tensor) -> Tensor:
            """[m, 3] smoothed loss, likelihood, cross-entropy of the teacher's distribution."""
            scores = log_probabilities(model.output.logits(hidden))
            with torch.no_grad():
                teacher_scores = log_probabilities(teacher.output.logits(teacher_hidden))
                nll = smoothed_nll(scores, targets, 0.0)
            return torch.stack(
                [smoothed_nll(scores, targets, config.label_smoothing), nll, cross_entropy_of(teacher_scores, scores)],
                1,
            )

        rows = by_rows(of_tokens, decoded.hidden, teacher_hidden, batch.targets)
        loss, nll, distilled = weighted_sum(rows, batch.weights)
        auxiliary = weighted_auxiliary(config.auxiliary_weights, decoded, total_weight(batch))
        auxiliary["distillation"] = config.distillation_weight * distilled
        return token_report(batch, (1 - config.distillation_weight) * loss, nll.detach(), auxiliary)
