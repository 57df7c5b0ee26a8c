"""Word-level knowledge distillation: Kim and Rush 2016, arXiv:1606.07947, sections 2.2 and 3.1.

Shapes: M real target positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.config.option import option
from nmt.criterions import Criterion, criterions
from nmt.criterions.cross_entropy import token_report, weighted_auxiliary
from nmt.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyConfig
from nmt.errors import UsageError
from nmt.interface import Batch, EncoderDecoder, LossReport
from nmt.modules.chunked import by_rows, cross_entropy_of, log_probabilities, smoothed_nll


@dataclass
class WordDistillationConfig(LabelSmoothedCrossEntropyConfig):
    """The paper's weight of the teacher, a half."""

    label_smoothing: float = option(0.0, help="share of probability spread evenly", flag="--label-smoothing")
    teacher: str = option("", help="run folder or checkpoint of the model to learn from", flag="--teacher")
    distillation_weight: float = option(
        0.5, help="weight of the teacher's distribution; the rest is that of the targets", flag="--distillation-weight"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.distillation_weight <= 1.0:
            raise UsageError(f"criterion.distillation_weight={self.distillation_weight} must lie between 0 and 1")


class WordDistillation(Criterion):
    """(1 - weight) * cross-entropy of the targets + weight * cross-entropy of the teacher's distributions; per token."""

    def __init__(self, config: WordDistillationConfig, teacher: EncoderDecoder) -> None:
        """``teacher`` is in eval mode, on the model's device, and has the model's vocabularies."""
        super().__init__()
        self._config = config
        self._teacher = (teacher,)  # a tuple: no part of what is trained, moved or saved

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        config, (teacher,) = self._config, self._teacher
        decoded = model(batch)
        with torch.no_grad():
            taught = teacher(batch).hidden

        def of_tokens(hidden: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
            """[m, 3] smoothed loss, likelihood, cross-entropy of the teacher's distribution."""
            scores = log_probabilities(model.output.logits(hidden))
            with torch.no_grad():
                wanted = log_probabilities(teacher.output.logits(taught))
                nll = smoothed_nll(scores, targets, 0.0)
            return torch.stack(
                [smoothed_nll(scores, targets, config.label_smoothing), nll, cross_entropy_of(wanted, scores)], 1
            )

        loss, nll, distilled = by_rows(of_tokens, decoded.hidden, taught, batch.targets).sum(0)
        auxiliary = weighted_auxiliary(config.auxiliary_weights, decoded, batch.num_tokens)
        auxiliary["distillation"] = config.distillation_weight * distilled
        return token_report(batch, (1 - config.distillation_weight) * loss, nll.detach(), auxiliary)


@criterions.register("word_distillation", WordDistillationConfig)
def build(config: WordDistillationConfig, *, teacher: EncoderDecoder) -> WordDistillation:
    return WordDistillation(config, teacher)
