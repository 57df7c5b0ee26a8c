"""R-Drop: two passes with different dropout should agree. Liang et al. 2021, arXiv:2106.14448, section 2.1.

Shapes: M real target positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.criterions import Criterion, criterions
from nmt.criterions.chunked import by_rows, log_probabilities, smoothed_nll, symmetric_divergence
from nmt.criterions.cross_entropy import token_report, weighted_auxiliary
from nmt.criterions.r_drop_config import RDropConfig
from nmt.interface import Batch, EncoderDecoder, LossReport


@criterions.register("r_drop", RDropConfig)
class RDrop(Criterion):
    """The sum of both passes' cross-entropies and alpha times the mean of KL(P1 || P2) and KL(P2 || P1); per token.

    As in the paper the likelihood enters twice: the loss of a model without dropout is twice its cross-entropy. The
    reported likelihood, and so the perplexity, is the mean of the two passes.
    """

    runs_model_once = False

    def __init__(self, config: RDropConfig) -> None:
        super().__init__()
        self._config = config

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        config = self._config
        first, second = model(batch), model(batch)

        def of_tokens(one: Tensor, other: Tensor, targets: Tensor) -> Tensor:
            """[m, 3] smoothed loss of both, mean likelihood of both, mean divergence."""
            scores = [log_probabilities(model.output.logits(hidden)) for hidden in (one, other)]
            loss = torch.stack([smoothed_nll(each, targets, config.label_smoothing) for each in scores]).sum(0)
            nll = torch.stack([smoothed_nll(each.detach(), targets, 0.0) for each in scores]).mean(0)
            return torch.stack([loss, nll, symmetric_divergence(*scores) / 2], 1)

        loss, nll, divergence = by_rows(of_tokens, first.hidden, second.hidden, batch.targets).sum(0)
        auxiliary = {"divergence": config.divergence_weight * divergence}
        for decoded in (first, second):
            for name, value in weighted_auxiliary(config.auxiliary_weights, decoded, batch.num_tokens).items():
                auxiliary[name] = auxiliary[name] + value if name in auxiliary else value
        return token_report(batch, loss, nll.detach(), auxiliary)
