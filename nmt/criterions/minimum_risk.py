"""Minimum risk training: Shen et al. 2016, arXiv:1512.02433, equations 11 to 13 and algorithm 1.

Shapes: B sentences, K candidates of each, T target positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.criterions import CriterionParts, criterions
from nmt.criterions.cross_entropy import weighted_auxiliary
from nmt.criterions.minimum_risk_config import MinimumRiskConfig
from nmt.criterions.sequences import SequenceCriterion, Translations, decode, draw, references, rewards, sentence_report
from nmt.data.vocabulary import PAD
from nmt.interface import Batch, EncoderDecoder, LossReport


@criterions.register("minimum_risk", MinimumRiskConfig)
class MinimumRisk(SequenceCriterion):
    """The expected loss 1 - reward under P(y|x)^alpha, renormalised over a few candidates; divided by sentences.

    Candidates are the distinct ones of the translations drawn, and the reference (algorithm 1).
    """

    def __init__(self, config: MinimumRiskConfig, parts: CriterionParts) -> None:
        super().__init__(config, parts)
        self.sharpness = config.sharpness

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        wanted = references(batch)
        candidates = _joined(wanted, draw(self.sampler, model, batch))
        scores, decoded = decode(model, model.encode(batch.source, batch.source_lengths), batch, candidates)
        scores = scores.sum(2)  # [B, K] the reference is the first
        shares = self._shares(scores, _repeated(candidates))
        losses = 1.0 - rewards(self.reward, candidates, wanted)
        risk = (shares * losses).sum()
        auxiliary = weighted_auxiliary(self.auxiliary_weights, decoded, batch.num_sentences)
        return sentence_report(batch, risk, -scores[:, 0].sum().detach(), auxiliary)

    def _shares(self, scores: Tensor, repeated: Tensor) -> Tensor:
        """[B, K] Q(y|x) of equation 13; a candidate that stands there already has no share."""
        return (self.sharpness * scores).masked_fill(repeated, -torch.inf).softmax(1)


def _joined(first: Translations, second: Translations) -> Translations:
    """The candidates of both, side by side."""
    longest = max(first.tokens.size(2), second.tokens.size(2))
    tokens = [
        torch.nn.functional.pad(part.tokens, (0, longest - part.tokens.size(2)), value=PAD) for part in (first, second)
    ]
    lengths = torch.cat([first.lengths, second.lengths], 1)
    return Translations(torch.cat(tokens, 1), lengths, torch.cat([first.finished, second.finished], 1))


def _repeated(candidates: Translations) -> Tensor:
    """[B, K] True where an earlier candidate of the same sentence has the same tokens."""
    batch, count, longest = candidates.tokens.shape
    distinct: tuple[Tensor, Tensor] = torch.unique(candidates.tokens.view(-1, longest), dim=0, return_inverse=True)
    numbers = distinct[1].view(batch, count)
    return (numbers[:, :, None] == numbers[:, None, :]).tril(-1).any(2)
