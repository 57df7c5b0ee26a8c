"""Bases of models with a recurrent decoder, and of those with one attention.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
E embedding, P parts of a state, H hidden size, C width of the encoder's states, D width of the output layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nmt.interface import AttentionRequest, Batch, DecoderOutput, DecoderState, EncoderDecoder, Memory, StepOutput
from nmt.layers.dropout import Dropout
from nmt.layers.padding import padding_bias
from nmt.layers.recurrent_attention import RecurrentAttention
from nmt.models.output_layers import ScoredMemory, decoded
from nmt.models.recurrent.layers import RecurrentLayer, States

# States [N, T, D], attention weights [B, N/B * T, S] by layer (possibly none), and the state after the last token.
ReadResult = tuple[Tensor, Sequence[Tensor], DecoderState]


class Recurrent(EncoderDecoder, ABC):
    """A model whose decoder continues from a state: over a whole target in teacher forcing, over one token in a step.

    ``memory`` and ``state`` have the types that ``encode`` and ``begin`` return.
    """

    @abstractmethod
    def begin(self, memory: Any, beam_size: int) -> DecoderState:
        """Return the state before the first token, for ``beam_size`` hypotheses of each sentence."""

    @abstractmethod
    def read(self, tokens: Tensor, memory: Any, state: Any) -> ReadResult:
        """Read tokens [N, T] after a state; N = B (teacher forcing) or T = 1 (a step)."""

    def read_out(self, states: Tensor) -> Tensor:
        """The input of the output layer: [..., D] -> [..., D]"""
        return states

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        states, weights, _ = self.read(batch.target_in, memory, self.begin(memory, 1))
        return decoded(states, batch, attention, weights, read_out=self.read_out)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, ScoredMemory)
        return memory.scored_by(self.output, vocabulary), self.begin(memory, beam_size)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ScoredMemory)
        states, weights, state = self.read(tokens[:, None], memory, state)
        scores = self.scores(self.read_out(states[:, 0]), memory.output)
        return StepOutput(scores, False, state, weights[-1].flatten(0, 1) if attention and weights else None)


@dataclass
class AttendedMemory(ScoredMemory):
    """The encoder output, in source order, with the keys of the attention."""

    states: Tensor  # [B, S, C]
    keys: Tensor  # [B, S, ...] projected by the attention
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding
    # [B, Z] the encoder's last state, if the decoder reads it
    summary: Tensor | None = field(default=None, kw_only=True)


def attended(states: Tensor, lengths: Tensor, attention: RecurrentAttention) -> tuple[Tensor, Tensor, Tensor]:
    """Return the states, keys and bias of ``AttendedMemory``."""
    return states, attention.project(states), padding_bias(lengths, states.size(1), states.dtype)[:, None]


@dataclass
class StackState(DecoderState):
    """The states of a decoder's layers."""

    layers: States  # [N, P, H] by layer
    fed: Tensor | None = None  # [N, D] the previous readout, for input feeding


# Outputs [N, T, D], attention weights [B, N/B * T, S] or None, and the state after the last position.
DecoderResult = tuple[Tensor, Tensor | None, StackState]


class DecoderStack(nn.Module, ABC):
    """Recurrent layers and an attention."""

    attention: RecurrentAttention

    @abstractmethod
    def recurrent(self) -> Iterable[RecurrentLayer]:
        """Return the layers, bottom first."""

    def start(self, layers: States) -> StackState:
        """Return the state before the first position."""
        return StackState(layers)

    @abstractmethod
    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        """Continue from a state over embedded [N, T, E]; N = B (teacher forcing) or T = 1 (a step)."""


class AttentiveRecurrent(Recurrent):
    """A model of embeddings, an encoder and a ``DecoderStack``."""

    encoder: nn.Module  # [B, S, E], lengths -> states [B, S, C], and a second result
    decoder: DecoderStack

    def __init__(self, source: nn.Module, target: nn.Module, dropout: float) -> None:
        """``source`` and ``target`` embed ids; ``dropout`` applies to embeddings."""
        super().__init__()
        self.source_embedding = source
        self.target_embedding = target
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, source_lengths: Tensor) -> AttendedMemory:
        states, _ = self.encoder(self.dropout(self.source_embedding(source)), source_lengths)
        return AttendedMemory(*attended(states, source_lengths, self.decoder.attention))

    def begin(self, memory: AttendedMemory, beam_size: int) -> StackState:
        """Return zero states: the decoder reads the source only through attention."""
        rows = memory.states.size(0) * beam_size
        return self.decoder.start(tuple(layer.zeros(rows, memory.states) for layer in self.decoder.recurrent()))

    def read(self, tokens: Tensor, memory: AttendedMemory, state: StackState) -> ReadResult:
        embedded = self.dropout(self.target_embedding(tokens))  # [N, T, E]
        hidden, weights, after = self.decoder(embedded, memory, state)
        return hidden, () if weights is None else (weights,), after


def run_with_own_context(
    layer: RecurrentLayer, attention: RecurrentAttention, embedded: Tensor, source: AttendedMemory, state: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run a layer whose output is the query for the context in its next input.

    embedded [N, T, E] -> inputs [N, T, C + E], outputs [N, T, H], weights [B, N/B * T, S] (T > 1 only where N = B), and
    the state after the last position.
    """
    inputs, outputs, weights = [], [], []
    for token in embedded.unbind(1):
        queries = layer.split(state)[0].view(source.states.size(0), -1, layer.hidden_size)  # [B, K, H]
        contexts, weight = attention(queries, source.keys, source.states, source.bias)
        x = torch.cat([contexts.flatten(0, 1), token], dim=-1)[:, None]  # [N, 1, C + E]
        output, state = layer(x, state)
        inputs.append(x)
        outputs.append(output)
        weights.append(weight)
    return torch.cat(inputs, dim=1), torch.cat(outputs, dim=1), torch.cat(weights, dim=1), state


def initialize(model: nn.Module, init_range: float | None) -> None:
    """Initialize all parameters uniformly within +-``init_range``; None keeps their initialization."""
    if init_range is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-init_range, init_range)
