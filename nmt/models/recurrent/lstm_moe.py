"""LSTMs with a mixture of experts between them: Shazeer et al. 2017, arXiv:1701.06538, section 5.3 and appendices D and E.

GNMT cut down to three encoder and two decoder layers, with a sparsely gated mixture in each. Shapes: B sentences, K beam,
N = B*K hypotheses, S source positions, T target positions, M real target positions, D width of everything, E experts,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.interface import AttentionRequest, Batch, DecoderOutput, Memory, VocabularySizes, real_positions
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Embedding
from nmt.layers.experts import Experts, NoisyTopK, balance, tokens_by_sentence, total_usage
from nmt.layers.recurrent_attention import ProductAttention
from nmt.layers.stack import Stack
from nmt.models import models
from nmt.models.output_layers import LinearOutput, decoded
from nmt.models.recurrent.attentive_recurrent import (
    AttendedMemory,
    AttentiveRecurrent,
    DecoderResult,
    DecoderStack,
    StackState,
    attended,
    run_with_own_context,
)
from nmt.models.recurrent.config import LSTMMoEConfig
from nmt.models.recurrent.layers import BidirectionalLayer, DirectedLayer, ProjectedLSTMLayer


@dataclass
class LSTMMoEMemory(AttendedMemory):
    """The encoder output and the usage of the encoder's experts."""

    usage: Tensor  # [B, 2, E] importance and load of each expert, summed over the sentence


class ExpertMixture(nn.Module):
    """x + Dropout(sigmoid(MoE(x))): appendix E."""

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        self.gating = NoisyTopK(config.width, config.num_experts, config.experts_per_token)
        self.experts = Experts(config.width, config.expert_size, config.num_experts)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [n, D] -> [n, D], and each token's importance and load of the experts [n, 2, E]"""
        routing = self.gating(x)
        mixed = self.dropout.add(x, torch.sigmoid(self.experts(x, routing)))
        return mixed, torch.stack([routing.gates, routing.load], dim=1)

    def at(self, real: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """[N, T, D] -> [N, T, D] and [n, 2, E]; positions that are not ``real`` [N, T] stay unchanged"""
        mixed, used = self(x[real])
        return x.masked_scatter(real[:, :, None], mixed), used


class Encoder(nn.Module):
    """A bidirectional layer, a layer, the mixture and a third layer, each with a residual connection."""

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        width, cell = config.width, config.cell_size
        onward, backward = (ProjectedLSTMLayer(width, cell, width) for _ in range(2))
        self.below = Stack(
            [BidirectionalLayer(onward, backward, torch.add), DirectedLayer(ProjectedLSTMLayer(width, cell, width))]
        )
        self.mixture = ExpertMixture(config)
        self.above = DirectedLayer(ProjectedLSTMLayer(width, cell, width))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> states [B, S, D] (arbitrary at padding), usage [B, 2, E]"""
        for layer in self.below:
            x = self.dropout.add(x, layer(x, lengths)[0])
        x, used = self.mixture.at(real_positions(lengths, x.size(1)), x)
        return self.dropout.add(x, self.above(x, lengths)[0]), tokens_by_sentence(used, lengths)


class Decoder(DecoderStack):
    """A layer whose output is the query for its next context, the mixture, and a second layer.

    "The first decoder LSTM receiving output from and providing input for the attention" (appendix E). Only that layer runs
    position by position.
    """

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        width, cell = config.width, config.cell_size
        self.bottom = ProjectedLSTMLayer(2 * width, cell, width)
        self.mixture = ExpertMixture(config)
        self.top = ProjectedLSTMLayer(width, cell, width)
        self.attention = ProductAttention(width, width)
        self.dropout = Dropout(config.dropout)

    def recurrent(self) -> Iterable[ProjectedLSTMLayer]:
        return self.bottom, self.top

    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        """The mixture reads all positions."""
        everywhere = torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device)
        hidden, weights, _, after = self.mixing_at(everywhere, embedded, source, state)
        return hidden, weights, after

    def mixing_at(
        self, real: Tensor, embedded: Tensor, source: AttendedMemory, state: StackState
    ) -> tuple[Tensor, Tensor, Tensor, StackState]:
        """Run ``forward`` with a mixture over the n ``real`` positions [N, T]; the third result is its usage [n, 2, E]."""
        _, states, weights, bottom = run_with_own_context(
            self.bottom, self.attention, embedded, source, state.layers[0]
        )
        x, used = self.mixture.at(real, self.dropout.add(embedded, states))
        states, top = self.top(x, state.layers[1])
        return self.dropout.add(x, states), weights, used, StackState((bottom, top))


@models.register("lstm_moe", LSTMMoEConfig)
class LSTMMoE(AttentiveRecurrent):
    """A recurrent encoder-decoder with a mixture of experts in each stack."""

    shapes_depend_on_tokens = True  # the number of tokens of each expert

    def __init__(self, config: LSTMMoEConfig, sizes: VocabularySizes) -> None:
        source, target = (Embedding(count, config.width) for count in (sizes.source, sizes.target))
        super().__init__(source, target, config.dropout)
        self.width = config.width
        self.output = LinearOutput.with_bias(config.width, sizes.target)
        self.importance_weight, self.load_weight = config.importance_weight, config.load_weight
        self.encoder = Encoder(config)
        self.decoder: Decoder = Decoder(config)

    def encode(self, source: Tensor, source_lengths: Tensor) -> LSTMMoEMemory:
        states, usage = self.encoder(self.dropout(self.source_embedding(source)), source_lengths)
        return LSTMMoEMemory(*attended(states, source_lengths, self.decoder.attention), usage)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, LSTMMoEMemory)
        embedded = self.dropout(self.target_embedding(batch.target_in))
        real = real_positions(batch.target_lengths, embedded.size(1))
        hidden, weights, used, _ = self.decoder.mixing_at(real, embedded, memory, self.begin(memory, 1))
        encoder = total_usage(memory.usage, batch.sentence_weights)
        decoder = total_usage(used, batch.sentence_weights, batch.target_lengths)
        balanced = balance(torch.stack([encoder, decoder]), self.importance_weight, self.load_weight)
        return decoded(hidden, batch, attention, (weights,), auxiliary=balanced)
