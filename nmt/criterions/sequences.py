"""Objectives over whole sentences: translations are drawn and rewarded, and the model's probabilities of them changed.

Shapes: B sentences, K translations of each, T target positions, M real target positions of B * K translations,
R positions of a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.criterions import Criterion, CriterionParts, criterions
from nmt.criterions.chunked import by_rows, log_probabilities
from nmt.criterions.config import ExpectedRewardConfig, MinimumRiskConfig
from nmt.criterions.config import SequenceConfig as SequenceConfig
from nmt.criterions.cross_entropy import token_report, token_sums, weighted_auxiliary
from nmt.data.batch import with_targets
from nmt.data.vocabulary import PAD
from nmt.interface import Batch, DecoderOutput, EncoderDecoder, LossReport, Memory, real_positions


@dataclass(frozen=True)
class Translations:
    """K translations of each sentence of a batch."""

    tokens: Tensor  # [B, K, T] ids ending in eos, then pad
    lengths: Tensor  # [B, K] eos included
    finished: Tensor  # [B, K] False: the length limit put the eos there, not the model


# Draws translations of sources [B, S] with lengths [B]; the last argument is the seed. Nothing else may be random.
Sampler = Callable[[EncoderDecoder, Tensor, Tensor, int], Translations]

# [N] how good hypotheses (ids [N, T], lengths [N]) are beside references (ids [N, R], lengths [N]), from 0 to 1.
Reward = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class SequenceCriterion(Criterion):
    """An objective that draws translations and rewards them, to be divided by sentences."""

    runs_model_once = False

    def __init__(self, config: SequenceConfig, parts: CriterionParts) -> None:
        super().__init__()
        self.config, self.sampler, self.reward = config, parts.sampler, parts.reward


def draw(sampler: Sampler, model: EncoderDecoder, batch: Batch) -> Translations:
    """Translations from the model as it is, without dropout.

    The seed is taken from torch's generator, which the trainer seeds for each micro-batch: they are others at each
    update, and the same when an update is repeated.
    """
    seed = int(torch.randint(2**62, ()))
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return sampler(model, batch.source, batch.source_lengths, seed)
    finally:
        model.train(training)
        # Autocast keeps its copies of the parameters; older releases of torch keep those made here, which know of no
        # gradient, for the passes that need one.
        torch.clear_autocast_cache()


def references(batch: Batch) -> Translations:
    """The targets of a batch: K = 1."""
    real = real_positions(batch.target_lengths, batch.target_in.size(1))
    tokens = torch.full_like(batch.target_in, PAD).masked_scatter(real, batch.targets)
    lengths = batch.target_lengths[:, None]
    return Translations(tokens[:, None], lengths, torch.ones_like(lengths, dtype=torch.bool))


def rewards(reward: Reward, found: Translations, wanted: Translations) -> Tensor:
    """[B, K] of each translation, beside the one reference of its sentence; eos is not part of what is compared."""
    count = found.tokens.size(1)
    given = reward(
        found.tokens.flatten(0, 1),
        found.lengths.flatten() - 1,
        wanted.tokens[:, 0].repeat_interleave(count, 0),
        wanted.lengths[:, 0].repeat_interleave(count) - 1,
    )
    return given.view(-1, count)


def decode(
    model: EncoderDecoder, memory: Memory, batch: Batch, translations: Translations
) -> tuple[Tensor, DecoderOutput]:
    """[B, K, T] the log-probability of each token (0 at padding), with gradient, and what the decoder returned.

    ``memory`` is that of the batch: its sources are encoded once, however many translations there are.
    """
    batch_size, count, longest = translations.tokens.shape
    many = with_targets(batch, translations.tokens.flatten(0, 1), translations.lengths.flatten())
    rows = torch.arange(batch_size, device=batch.source.device).repeat_interleave(count)
    decoded = model.decode(memory.rows(rows), many)

    def of_tokens(hidden: Tensor, tokens: Tensor) -> Tensor:
        return log_probabilities(model.output.logits(hidden)).gather(1, tokens[:, None]).squeeze(1)

    scores = by_rows(of_tokens, decoded.hidden, many.targets)  # [M]
    real = real_positions(many.target_lengths, longest).view(batch_size, count, longest)
    return scores.new_zeros(real.shape).masked_scatter(real, scores), decoded


def sentence_report(batch: Batch, loss: Tensor, nll: Tensor, auxiliary: Mapping[str, Tensor]) -> LossReport:
    """The report of a loss over sentences, to which the auxiliary sums are added."""
    count = torch.full((), float(batch.num_sentences), device=loss.device)
    return replace(token_report(batch, loss, nll, auxiliary), denominator=count)


@criterions.register("expected_reward", ExpectedRewardConfig)
class ExpectedReward(SequenceCriterion):
    """loss = - sum_Y P(Y|X) r(Y, Y*) - weight * log P(Y*|X), to be divided by sentences: Wu et al. 2016 (GNMT),
    arXiv:1609.08144, section 5, equations 7 to 9.

    The sum over all translations is estimated from K drawn ones. Its gradient is that of equation 8 with the mean
    reward of a sentence's translations as the baseline: the mean of (r - baseline) * grad log P(Y|X).
    """

    config: ExpectedRewardConfig

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        memory = model.encode(batch.source, batch.source_lengths)
        decoded = model.decode(memory, batch)
        likelihood, nll = token_sums(model, decoded.hidden, batch.targets, 0.0)
        auxiliary = weighted_auxiliary(self.config.auxiliary_weights, decoded, batch.num_sentences)
        expected = self._expected_reward(model, memory, batch)
        report = sentence_report(batch, self.config.likelihood_weight * likelihood - expected, nll, auxiliary)
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


@criterions.register("minimum_risk", MinimumRiskConfig)
class MinimumRisk(SequenceCriterion):
    """The expected loss 1 - reward under P(y|x)^alpha, renormalised over a few candidates; divided by sentences: Shen et al.
    2016, arXiv:1512.02433, equations 11 to 13.

    Candidates are the distinct ones of the translations drawn, and the reference (algorithm 1).
    """

    config: MinimumRiskConfig

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        wanted = references(batch)
        candidates = _joined(wanted, draw(self.sampler, model, batch))
        scores, decoded = decode(model, model.encode(batch.source, batch.source_lengths), batch, candidates)
        scores = scores.sum(2)  # [B, K] the reference is the first
        # Q(y|x) of equation 13; a candidate that stands there already has no share.
        shares = (self.config.sharpness * scores).masked_fill(_repeated(candidates), -torch.inf).softmax(1)
        risk = (shares * (1.0 - rewards(self.reward, candidates, wanted))).sum()
        auxiliary = weighted_auxiliary(self.config.auxiliary_weights, decoded, batch.num_sentences)
        return sentence_report(batch, risk, -scores[:, 0].sum().detach(), auxiliary)


def _joined(first: Translations, second: Translations) -> Translations:
    """The candidates of both, side by side."""
    longest = max(first.tokens.size(2), second.tokens.size(2))
    tokens = [F.pad(part.tokens, (0, longest - part.tokens.size(2)), value=PAD) for part in (first, second)]
    lengths = torch.cat([first.lengths, second.lengths], 1)
    return Translations(torch.cat(tokens, 1), lengths, torch.cat([first.finished, second.finished], 1))


def _repeated(candidates: Translations) -> Tensor:
    """[B, K] True where an earlier candidate of the same sentence has the same tokens."""
    batch, count, longest = candidates.tokens.shape
    distinct: tuple[Tensor, Tensor] = torch.unique(candidates.tokens.view(-1, longest), dim=0, return_inverse=True)
    numbers = distinct[1].view(batch, count)
    return (numbers[:, :, None] == numbers[:, None, :]).tril(-1).any(2)
