"""Word-level knowledge distillation: Kim and Rush 2016, arXiv:1606.07947, sections 2.2 and 3.1.

Shapes: M real target positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.criterions import Criterion, CriterionParts, criterions
from nmt.criterions.chunked import by_rows, cross_entropy_of, log_probabilities, smoothed_nll
from nmt.criterions.cross_entropy import token_report, weighted_auxiliary
from nmt.criterions.word_distillation_config import WordDistillationConfig
from nmt.interface import Batch, EncoderDecoder, LossReport


@criterions.register("word_distillation", WordDistillationConfig)
class WordDistillation(Criterion):
    """(1 - weight) * cross-entropy of the targets + weight * cross-entropy of the teacher's distributions; per token."""

    def __init__(self, config: WordDistillationConfig, parts: CriterionParts) -> None:
        super().__init__()
        self._config = config
        self._teacher = (parts.teacher,)  # a tuple: no part of what is trained, moved or saved

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
