"""Criterions over sentences, which sample translations and reward them.

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
from nmt.data.batching.batch import offsets_of
from nmt.data.vocabulary import BOS, PAD
from nmt.devices.kinds import device_of
from nmt.interface import Batch, DecoderOutput, EncoderDecoder, LossReport, Memory, real_positions
from nmt.layers.padding import real_rows


@dataclass(frozen=True)
class Translations:
    """K sampled translations of each sentence of a batch."""

    tokens: Tensor  # [B, K, T] ids ending in eos, then pad
    lengths: Tensor  # [B, K] eos included
    finished: Tensor  # [B, K] False: the eos was forced by the length limit


# Samples translations of the sources of a batch; the last argument is the seed, the only source of randomness.
Sampler = Callable[[EncoderDecoder, Batch, int], Translations]

# The reward [N] in [0, 1] of hypotheses (ids [N, T], lengths [N]) given references (ids [N, R], lengths [N]).
Reward = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class SequenceCriterion(Criterion):
    """A criterion that samples translations and rewards them; its denominator is the number of sentences."""

    def __init__(self, config: SequenceConfig, parts: CriterionParts) -> None:
        super().__init__()
        self.config, self.sampler, self.reward = config, parts.sampler, parts.reward


def draw(sampler: Sampler, model: EncoderDecoder, batch: Batch) -> Translations:
    """Sample translations from the current model, without dropout.

    The seed is drawn from torch's generator, which the trainer seeds for each micro-batch: samples differ between updates,
    and are reproducible.
    """
    seed = int(torch.randint(2**62, ()))
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return sampler(model, batch, seed)
    finally:
        model.train(training)
        # Older releases of torch would reuse autocast's copies of the parameters, which have no gradient, in later passes.
        torch.clear_autocast_cache()


def references(batch: Batch) -> Translations:
    """Return the targets of a batch as translations: K = 1."""
    lengths = batch.target_lengths - batch.started
    real = real_positions(lengths, batch.target_in.size(1) - batch.started)
    tokens = batch.targets.new_full(real.shape, PAD).masked_scatter(real, batch.targets)
    lengths = lengths[:, None]
    return Translations(tokens[:, None], lengths, torch.ones_like(lengths, dtype=torch.bool))


def rewards(reward: Reward, hypotheses: Translations, references: Translations) -> Tensor:
    """Return the reward [B, K] of each hypothesis given the reference of its sentence, without eos."""
    count = hypotheses.tokens.size(1)
    by_row = reward(
        hypotheses.tokens.flatten(0, 1),
        hypotheses.lengths.flatten() - 1,
        references.tokens[:, 0].repeat_interleave(count, 0),
        references.lengths[:, 0].repeat_interleave(count) - 1,
    )
    return by_row.view(-1, count)


def with_targets(batch: Batch, tokens: Tensor, lengths: Tensor) -> Batch:
    """Return a batch with each source K times in a row and new targets: ids [B * K, T] ending in eos, lengths [B * K].

    It is on the device of ``batch``. The new targets start with the same tokens of languages. Extra columns belong to the
    old targets and are dropped.
    """
    count = lengths.size(0) // batch.num_sentences
    (sizes,) = device_of(lengths).fetched(lengths)
    tokens = tokens[:, : sizes.max()]
    starts = batch.starts.repeat_interleave(count, 0)
    shifted = torch.cat([tokens.new_full((len(tokens), 1), BOS), starts, tokens[:, :-1]], 1)
    read = lengths + batch.started  # positions of the decoder
    source_lengths = batch.source_lengths.repeat_interleave(count)
    return Batch(
        source=batch.source.repeat_interleave(count, 0),
        source_lengths=source_lengths,
        target_in=shifted.masked_fill(~real_positions(read, shifted.size(1)), PAD),
        target_lengths=read,
        targets=real_rows(tokens, lengths, offsets_of(lengths), int(sizes.sum())),
        source_offsets=offsets_of(source_lengths),
        target_offsets=offsets_of(read),
        source_sizes=batch.source_sizes.repeat(count),
        target_sizes=sizes + batch.started,
        sentence_ids=batch.sentence_ids.repeat_interleave(count),
        started=batch.started,
    )


def decode(
    model: EncoderDecoder, memory: Memory, batch: Batch, translations: Translations
) -> tuple[Tensor, DecoderOutput]:
    """Return the log-probabilities [B, K, T] of the tokens of ``translations``, with gradient, and the decoder's output.

    Padding has the value 0, and so has a forced eos: it was not sampled, so its probability must not be trained. ``memory``
    is the encoder output of the batch, shared by all translations of a source.
    """
    batch_size, count, longest = translations.tokens.shape
    many = with_targets(batch, translations.tokens.flatten(0, 1), translations.lengths.flatten())
    rows = torch.arange(batch_size, device=batch.source.device).repeat_interleave(count)
    decoded = model.taught(memory.rows(rows), many)

    def of_tokens(hidden: Tensor, tokens: Tensor) -> Tensor:
        return log_probabilities(model.output.logits(hidden)).gather(1, tokens[:, None]).squeeze(1)

    scores = by_rows(of_tokens, decoded.hidden, many.targets)  # [M]
    real = real_positions(translations.lengths.flatten(), longest).view(batch_size, count, longest)
    lengths = translations.lengths - torch.where(translations.finished, 0, 1)
    drawn = real_positions(lengths.flatten(), longest).view_as(real)
    return scores.new_zeros(real.shape).masked_scatter(real, scores).where(drawn, 0.0), decoded


def sentence_report(batch: Batch, loss: Tensor, nll: Tensor, auxiliary: Mapping[str, Tensor]) -> LossReport:
    """Return the report of a loss over sentences plus the auxiliary sums."""
    count = torch.full((), float(batch.num_sentences), device=loss.device)
    return replace(token_report(batch, loss, nll, auxiliary), denominator=count)


@criterions.register("expected_reward", ExpectedRewardConfig)
class ExpectedReward(SequenceCriterion):
    """loss = - sum_Y P(Y|X) r(Y, Y*) - weight * log P(Y*|X), per sentence: Wu et al. 2016 (GNMT), arXiv:1609.08144,
    section 5, equations 7 to 9.

    K samples estimate the sum over all translations. The gradient is the mean of (r - baseline) * grad log P(Y|X): equation
    8, with the mean reward of a sentence's samples as the baseline.
    """

    config: ExpectedRewardConfig

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        memory = model.encode(batch.source, batch.source_lengths)
        decoded = model.taught(memory, batch)
        likelihood, nll = token_sums(model, decoded.hidden, batch, 0.0)
        auxiliary = weighted_auxiliary(self.config.auxiliary_weights, decoded, batch.num_sentences)
        expected = self._expected_reward(model, memory, batch)
        report = sentence_report(batch, self.config.likelihood_weight * likelihood - expected, nll, auxiliary)
        return replace(report, auxiliary={"reward": expected.detach(), **report.auxiliary})

    def _expected_reward(self, model: EncoderDecoder, memory: Memory, batch: Batch) -> Tensor:
        """Return the sum over sentences of the mean reward, with the gradient of equation 8."""
        samples = draw(self.sampler, model, batch)
        earned = rewards(self.reward, samples, references(batch))  # [B, K]
        value = earned.mean(1).sum()
        if not torch.is_grad_enabled():
            return value
        scores, _ = decode(model, memory, batch, samples)  # [B, K, T]
        advantage = earned - earned.mean(1, keepdim=True)
        surrogate = (advantage * scores.sum(2)).mean(1).sum()
        return value + (surrogate - surrogate.detach())


@criterions.register("minimum_risk", MinimumRiskConfig)
class MinimumRisk(SequenceCriterion):
    """The expected loss 1 - reward under P(y|x)^alpha, renormalized over candidates, per sentence: Shen et al. 2016,
    arXiv:1512.02433, equations 11 to 13.

    The candidates are the distinct samples and the reference (algorithm 1).
    """

    config: MinimumRiskConfig

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        reference = references(batch)
        candidates = _joined(reference, draw(self.sampler, model, batch))
        scores, decoded = decode(model, model.encode(batch.source, batch.source_lengths), batch, candidates)
        scores = scores.sum(2)  # [B, K] the reference is the first
        # Q(y|x) of equation 13; repeated candidates have probability 0.
        shares = (self.config.sharpness * scores).masked_fill(_repeated(candidates), -torch.inf).softmax(1)
        risk = (shares * (1.0 - rewards(self.reward, candidates, reference))).sum()
        auxiliary = weighted_auxiliary(self.config.auxiliary_weights, decoded, batch.num_sentences)
        return sentence_report(batch, risk, -scores[:, 0].sum().detach(), auxiliary)


def _joined(first: Translations, second: Translations) -> Translations:
    """Concatenate the candidates of both."""
    longest = max(first.tokens.size(2), second.tokens.size(2))
    tokens = [F.pad(part.tokens, (0, longest - part.tokens.size(2)), value=PAD) for part in (first, second)]
    lengths = torch.cat([first.lengths, second.lengths], 1)
    return Translations(torch.cat(tokens, 1), lengths, torch.cat([first.finished, second.finished], 1))


def _repeated(candidates: Translations) -> Tensor:
    """Return [B, K], True where an earlier candidate of the sentence has the same tokens."""
    batch, count, longest = candidates.tokens.shape
    distinct: tuple[Tensor, Tensor] = torch.unique(candidates.tokens.view(-1, longest), dim=0, return_inverse=True)
    numbers = distinct[1].view(batch, count)
    return (numbers[:, :, None] == numbers[:, None, :]).tril(-1).any(2)
