"""Expected reward mixed with likelihood: Wu et al. 2016 (GNMT), arXiv:1609.08144, section 5, equations 7 to 9.

Shapes: B sentences, K translations of each, T target positions.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from nmt.criterions import CriterionParts, criterions
from nmt.criterions.cross_entropy import token_sums, weighted_auxiliary
from nmt.criterions.expected_reward_config import ExpectedRewardConfig
from nmt.criterions.sequences import SequenceCriterion, decode, draw, references, rewards, sentence_report
from nmt.interface import Batch, EncoderDecoder, LossReport, Memory


@criterions.register("expected_reward", ExpectedRewardConfig)
class ExpectedReward(SequenceCriterion):
    """loss = - sum_Y P(Y|X) r(Y, Y*) - weight * log P(Y*|X), to be divided by sentences.

    The sum over all translations is estimated from K drawn ones. Its gradient is that of equation 8 with the mean
    reward of a sentence's translations as the baseline: the mean of (r - baseline) * grad log P(Y|X).
    """

    def __init__(self, config: ExpectedRewardConfig, parts: CriterionParts) -> None:
        super().__init__(config, parts)
        self.likelihood_weight = config.likelihood_weight

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        memory = model.encode(batch.source, batch.source_lengths)
        decoded = model.decode(memory, batch)
        likelihood, nll = token_sums(model, decoded.hidden, batch.targets, 0.0)
        auxiliary = weighted_auxiliary(self.auxiliary_weights, decoded, batch.num_sentences)
        expected = self._expected_reward(model, memory, batch)
        report = sentence_report(batch, self.likelihood_weight * likelihood - expected, nll, auxiliary)
        return replace(report, auxiliary={"reward": expected.detach(), **report.auxiliary})

    def _expected_reward(self, model: EncoderDecoder, memory: Memory, batch: Batch) -> Tensor:
        """The sum over sentences: its value is the mean reward, its gradient that of equation 8."""
        drawn = draw(self.sampler, model, batch)
        earned = rewards(self.reward, drawn, references(batch))  # [B, K]
        value = earned.mean(1).sum()
        if not torch.is_grad_enabled():
            return value
        scores, _ = decode(model, memory, batch, drawn)  # [B, K, T]
        # An eos that the length limit put there was not drawn: its probability must not be learned.
        last = drawn.lengths - torch.where(drawn.finished, 0, 1)  # [B, K]
        chosen = torch.arange(scores.size(2), device=scores.device) < last[:, :, None]
        advantage = earned - earned.mean(1, keepdim=True)
        surrogate = (advantage * (scores * chosen).sum(2)).mean(1).sum()
        return value + (surrogate - surrogate.detach())
