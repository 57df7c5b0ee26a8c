"""Deep-Att, a deep recurrent model with fast-forward connections: Zhou et al. 2016, arXiv:1606.04199.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
E embedding, H hidden size, C width of what the attention reads, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from nmt.config.option import option
from nmt.config.sections import require_positive
from nmt.errors import UsageError
from nmt.interface import (
    AttentionMaps,
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    OutputLayer,
    StepOutput,
    VocabularySizes,
)
from nmt.models import models
from nmt.models.output_layers import LinearOutput
from nmt.modules.dropout import Dropout
from nmt.modules.embeddings import Embedding
from nmt.modules.fast_forward import FastForward, FastForwardColumn
from nmt.modules.padding import padding_bias, real_rows
from nmt.modules.recurrent import LSTMLayer, States
from nmt.modules.recurrent_attention import AdditiveAttention


@dataclass
class DeepAttConfig:
    """Sizes; the defaults are those of the paper."""

    encoder_layers: int = option(9, help="layers of each of the encoder's two columns")
    decoder_layers: int = option(7, help="layers of the decoder")
    embedding_size: int = option(256, help="width of the embeddings")
    hidden_size: int = option(512, help="width of every layer")
    dropout: float = option(0.1, help="dropout of the states between layers", flag="--dropout")

    def __post_init__(self) -> None:
        require_positive("model", encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers)
        require_positive("model", embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(f"model.dropout={self.dropout} must be at least 0 and less than 1")
        if self.hidden_size % 2:
            raise UsageError(
                f"hidden_size={self.hidden_size} is odd, but the attention reads a quarter of ten times as many numbers; "
                f"use an even model.hidden_size"
            )

    @property
    def memory_size(self) -> int:
        """A quarter of [h, f] of both columns: 1,280 in the paper."""
        return 10 * self.hidden_size // 4

    def shrink(self) -> DeepAttConfig:
        """The same structure in small sizes, for tests."""
        return replace(
            self,
            encoder_layers=min(self.encoder_layers, 3),
            decoder_layers=min(self.decoder_layers, 3),
            embedding_size=8,
            hidden_size=10,
        )


@dataclass
class DeepAttMemory(Memory):
    """What the encoder read, and what the attention needs of it."""

    states: Tensor  # [B, S, C]
    keys: Tensor  # [B, S, H]
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding
    output: OutputLayer  # over the shortlist, if there is one


@dataclass
class DeepAttState(DecoderState):
    """The states of all decoder layers; the bottom one asks for the next context."""

    layers: States  # [N, 2, H]


class Encoder(nn.Module):
    """Two columns whose directions alternate in opposite order, seen through W_p: section 3.2."""

    def __init__(self, config: DeepAttConfig) -> None:
        super().__init__()
        self.columns = nn.ModuleList(
            FastForwardColumn(
                config.embedding_size, config.hidden_size, config.encoder_layers, config.dropout, backwards=backwards
            )
            for backwards in (False, True)
        )
        self.projection = nn.Linear(10 * config.hidden_size, config.memory_size, bias=False)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """[B, S, E] -> [B, S, C]"""
        projected: Tensor = self.projection(torch.cat([column(embedded, lengths) for column in self.columns], dim=-1))
        return projected


class Decoder(nn.Module):
    """One column. The bottom layer's state asks for the context that is part of its next input; the rest sees f and h.

    So only the bottom layer has to take one position after the other.
    """

    def __init__(self, config: DeepAttConfig) -> None:
        super().__init__()
        size = config.hidden_size
        inputs = [config.embedding_size + config.memory_size, *[3 * size] * (config.decoder_layers - 1)]
        self.layers = nn.ModuleList(FastForward(LSTMLayer(width, size), config.dropout) for width in inputs)
        self.attention = AdditiveAttention(size, config.memory_size)

    def start(self, memory: DeepAttMemory, rows: int) -> States:
        """Nothing but zeros: the source comes in through attention."""
        return tuple(memory.states.new_zeros(rows, 2, layer.layer.hidden_size) for layer in self._stack())

    def forward(self, embedded: Tensor, memory: DeepAttMemory, states: States) -> tuple[Tensor, Tensor, States]:
        """embedded [N, T, E] -> [Half(f), h] of the top layer [N, T, 3H], weights [B, N/B * T, S], the next states."""
        bottom, *upper = self._stack()
        given, hidden, weights, state = self._alternating(bottom.layer, embedded, memory, states[0])
        x, after = bottom.passed_on(given, hidden), [state]
        for layer, before in zip(upper, states[1:]):
            hidden, state = layer.layer(x, before)
            x = layer.passed_on(x, hidden)
            after.append(state)
        return x, weights, tuple(after)

    def _stack(self) -> list[FastForward]:
        return cast("list[FastForward]", list(self.layers))

    def _alternating(
        self, bottom: LSTMLayer, embedded: Tensor, memory: DeepAttMemory, state: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Asking and reading in turns: inputs [N, T, I], states [N, T, H], weights, and the state after the last one."""
        inputs, hidden, weights = [], [], []
        for piece in embedded.unbind(1):
            queries = state[:, 0].view(memory.states.size(0), -1, state.size(-1))  # [B, K, H]
            contexts, weight = self.attention(queries, memory.keys, memory.states, memory.bias)
            x = torch.cat([contexts.flatten(0, 1), piece], dim=-1)[:, None]  # [N, 1, I]
            output, state = bottom(x, state)
            inputs.append(x)
            hidden.append(output)
            weights.append(weight)
        return torch.cat(inputs, 1), torch.cat(hidden, 1), torch.cat(weights, 1), state


@models.register("deep_att", DeepAttConfig)
class DeepAtt(EncoderDecoder):
    """Interleaved columns of LSTMs; half of every layer's feed-forward block goes on untouched."""

    def __init__(self, config: DeepAttConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = config.hidden_size
        self.source_embedding = Embedding(sizes.source, config.embedding_size)
        self.target_embedding = Embedding(sizes.target, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        output = nn.Linear(3 * config.hidden_size, sizes.target)
        self.output = LinearOutput(output.weight.detach(), output.bias.detach())

    def encode(self, source: Tensor, source_lengths: Tensor) -> DeepAttMemory:
        states = self.encoder(self.dropout(self.source_embedding(source)), source_lengths)
        bias = padding_bias(source_lengths, source.size(1), states.dtype)[:, None]  # [B, 1, S]
        return DeepAttMemory(states, self.decoder.attention.project(states), bias, self.output)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, DeepAttMemory)
        embedded = self.dropout(self.target_embedding(batch.target_in))
        hidden, weights, _ = self.decoder(embedded, memory, self.decoder.start(memory, embedded.size(0)))
        hidden = real_rows(hidden, batch.target_lengths, batch.target_offsets, batch.num_tokens)  # [M, 3H]
        if attention is None:
            return DecoderOutput(hidden)
        return DecoderOutput(
            hidden, AttentionMaps({"cross": (weights[:, None],)} if "cross" in attention.kinds else {})
        )

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, DeepAttMemory)
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        layers = self.decoder.start(memory, memory.states.size(0) * beam_size)
        return replace(memory, output=output), DeepAttState(layers)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, DeepAttMemory) and isinstance(state, DeepAttState)
        embedded = self.dropout(self.target_embedding(tokens))[:, None]  # [N, 1, E]
        hidden, weights, layers = self.decoder(embedded, memory, state.layers)
        scores = memory.output.logits(hidden[:, 0])
        return StepOutput(scores, False, DeepAttState(layers), weights.flatten(0, 1) if attention else None)
