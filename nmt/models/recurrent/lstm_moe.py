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
from nmt.layers.experts import Experts, NoisyTopK, balance, tokens_by_sentence
from nmt.layers.recurrent_attention import ProductAttention
from nmt.layers.stack import Stack
from nmt.models import models
from nmt.models.output_layers import LinearOutput, decoded
from nmt.models.recurrent.attentive_recurrent import (
    Advanced,
    AttendedMemory,
    AttentiveRecurrent,
    DecoderStack,
    StackState,
    asking_and_reading,
    attended,
)
from nmt.models.recurrent.config import LSTMMoEConfig
from nmt.models.recurrent.layers import BothWays, OneWay, ProjectedLSTMLayer


@dataclass
class LSTMMoEMemory(AttendedMemory):
    """Besides, how the encoder's mixture was used."""

    usage: Tensor  # [B, 2, E] importance and load of each expert, summed over the sentence


class Mixture(nn.Module):
    """x + Dropout(sigmoid(MoE(x))): appendix E puts a sigmoid before the residual sum."""

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        self.gating = NoisyTopK(config.width, config.num_experts, config.experts_per_token)
        self.experts = Experts(config.width, config.expert_size, config.num_experts)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [n, D] -> [n, D], and each token's part [n, 2, E] in the experts' importance and load."""
        routing = self.gating(x)
        mixed = self.dropout.add(x, torch.sigmoid(self.experts(x, routing)))
        return mixed, torch.stack([routing.gates, routing.load], dim=1)

    def at(self, real: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The n real ones alone among positions [N, T, D]; the others stay as they are. [N, T, D] and [n, 2, E]"""
        mixed, used = self(x[real])
        return x.masked_scatter(real[:, :, None], mixed), used


class Encoder(nn.Module):
    """Two layers, the mixture, and a third layer; residual sums around all of them. The first reads in both directions."""

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        width, cell = config.width, config.cell_size
        onward, backward = (ProjectedLSTMLayer(width, cell, width) for _ in range(2))
        self.below = Stack([BothWays(onward, backward, torch.add), OneWay(ProjectedLSTMLayer(width, cell, width))])
        self.mixture = Mixture(config)
        self.above = OneWay(ProjectedLSTMLayer(width, cell, width))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> states [B, S, D] (padding may hold anything), usage [B, 2, E]"""
        for layer in self.below:
            x = self.dropout.add(x, layer(x, lengths)[0])
        x, used = self.mixture.at(real_positions(lengths, x.size(1)), x)
        return self.dropout.add(x, self.above(x, lengths)[0]), tokens_by_sentence(used, lengths)


class Decoder(DecoderStack):
    """A layer that asks for the context and reads it one position later, the mixture, and a second layer.

    "The first decoder LSTM receiving output from and providing input for the attention" (appendix E): it takes one
    position after the other, what is above it all at once.
    """

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        width, cell = config.width, config.cell_size
        self.bottom = ProjectedLSTMLayer(2 * width, cell, width)
        self.mixture = Mixture(config)
        self.top = ProjectedLSTMLayer(width, cell, width)
        self.attention = ProductAttention(width, width)
        self.dropout = Dropout(config.dropout)

    def recurrent(self) -> Iterable[ProjectedLSTMLayer]:
        return self.bottom, self.top

    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> Advanced:
        """The readouts are the top layer's outputs."""
        everywhere = torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device)
        hidden, weights, _, after = self.mixing_at(everywhere, embedded, source, state)
        return hidden, weights, after

    def mixing_at(
        self, real: Tensor, embedded: Tensor, source: AttendedMemory, state: StackState
    ) -> tuple[Tensor, Tensor, Tensor, StackState]:
        """The same if the mixture reads only the n real positions [N, T]; besides, its usage [n, 2, E] comes third."""
        _, states, weights, bottom = asking_and_reading(self.bottom, self.attention, embedded, source, state.layers[0])
        x, used = self.mixture.at(real, self.dropout.add(embedded, states))
        states, top = self.top(x, state.layers[1])
        return self.dropout.add(x, states), weights, used, StackState((bottom, top))


@models.register("lstm_moe", LSTMMoEConfig)
class LSTMMoE(AttentiveRecurrent):
    """Recurrent layers, and between them a few of many feed-forward networks for each token."""

    shapes_depend_on_tokens = True  # how many tokens an expert reads

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
        usage = torch.stack([memory.usage.sum(0), used.sum(0)])  # [layers, 2, E]
        balanced = balance(usage, self.importance_weight, self.load_weight)
        return decoded(hidden, batch, attention, (weights,), auxiliary=balanced)
