"""What objectives over whole sentences share: drawing translations, rewarding them, and their probabilities.

Shapes: B sentences, K translations of each, T target positions, M real target positions of B * K translations,
R positions of a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.criterions import Criterion, CriterionParts
from nmt.criterions.chunked import by_rows, log_probabilities
from nmt.criterions.sequences_config import RewardKind as RewardKind
from nmt.criterions.sequences_config import SequenceConfig as SequenceConfig
from nmt.data.batch import with_targets
from nmt.data.vocabulary import PAD
from nmt.interface import Batch, DecoderOutput, EncoderDecoder, LossReport, Memory, real_positions


@dataclass(frozen=True)
class Translations:
    """K translations of each sentence of a batch."""

    tokens: Tensor  # [B, K, T] ids ending in eos, then pad
    lengths: Tensor  # [B, K] eos included
    finished: Tensor  # [B, K] False: the length limit put the eos there, not the model

    @property
    def real(self) -> Tensor:
        """[B, K, T] True at the real positions."""
        return torch.arange(self.tokens.size(2), device=self.tokens.device) < self.lengths[:, :, None]


# Draws translations of sources [B, S] with lengths [B]; the last argument is the seed. Nothing else may be random.
Sampler = Callable[[EncoderDecoder, Tensor, Tensor, int], Translations]

# [N] how good hypotheses (ids [N, T], lengths [N]) are beside references (ids [N, R], lengths [N]), from 0 to 1.
Reward = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class SequenceCriterion(Criterion):
    """An objective that draws translations and rewards them, to be divided by sentences."""

    runs_model_once = False

    def __init__(self, config: SequenceConfig, parts: CriterionParts) -> None:
        super().__init__()
        self.auxiliary_weights = config.auxiliary_weights
        self.sampler = parts.sampler
        self.reward = parts.reward


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
    padded = scores.new_zeros(batch_size, count, longest).masked_scatter(translations.real, scores)
    return padded, decoded


def sentence_report(batch: Batch, loss: Tensor, nll: Tensor, auxiliary: Mapping[str, Tensor]) -> LossReport:
    """The report of a loss over sentences, to which the auxiliary sums are added."""
    return LossReport(
        loss_sum=torch.stack([loss, *auxiliary.values()]).sum(),
        nll_sum=nll,
        denominator=torch.full((), float(batch.num_sentences), device=loss.device),
        num_tokens=torch.full((), float(batch.num_tokens), device=loss.device),
        num_sentences=batch.num_sentences,
        auxiliary={name: value.detach() for name, value in auxiliary.items()},
    )
