"""What all models have in common whose decoder reads on from a state, and those that have one attention.

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

# States [N, T, D], by layer the weights [B, N/B * T, S] of one head if there is attention, and the state after the tokens.
ReadOn = tuple[Tensor, Sequence[Tensor], DecoderState]


class Recurrent(EncoderDecoder, ABC):
    """A model whose decoder reads on from a state: a whole target by teacher forcing, or one piece in a step.

    It gets the kind of memory that its ``encode`` returns, and the kind of state that its ``begin`` returns.
    """

    @abstractmethod
    def begin(self, memory: Any, beam_size: int) -> DecoderState:
        """The state before anything is read, of so many hypotheses a sentence."""

    @abstractmethod
    def read(self, tokens: Tensor, memory: Any, state: Any) -> ReadOn:
        """Tokens [N, T] after a state, either N = B (teacher forcing) or T = 1 (a step)."""

    def read_out(self, states: Tensor) -> Tensor:
        """What the output layer sees: [..., D] -> [..., D]"""
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
    """What the encoder read, in the order of the source, and a decoder reads at every step."""

    states: Tensor  # [B, S, C]
    keys: Tensor  # [B, S, ...] what the attention needs of them
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding
    summary: Tensor | None = field(default=None, kw_only=True)  # [B, Z] the encoder's last state, if decoders see it


def attended(states: Tensor, lengths: Tensor, attention: RecurrentAttention) -> tuple[Tensor, Tensor, Tensor]:
    """The first parts of the memory of sentences of these lengths: the encoder's states, their keys and the bias."""
    return states, attention.project(states), padding_bias(lengths, states.size(1), states.dtype)[:, None]


@dataclass
class StackState(DecoderState):
    """Where a decoder is."""

    layers: States  # [N, P, H] by layer
    fed: Tensor | None = None  # [N, D] the readout of the step before, if it comes back as input


# Outputs [N, T, D], weights [B, N/B * T, S] if there are any, and the state after the last position.
Advanced = tuple[Tensor, Tensor | None, StackState]


class DecoderStack(nn.Module, ABC):
    """Recurrent layers and the attention that some of them use."""

    attention: RecurrentAttention

    @abstractmethod
    def recurrent(self) -> Iterable[RecurrentLayer]:
        """The layers, from the bottom up."""

    def start(self, layers: States) -> StackState:
        """The state before the first position."""
        return StackState(layers)

    @abstractmethod
    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> Advanced:
        """On from a state over embedded [N, T, E]: either N = B (teacher forcing) or T = 1 (a step)."""


class AttentiveRecurrent(Recurrent):
    """Embeddings, and all of decoding that follows from a stack of layers."""

    encoder: nn.Module  # [B, S, E], lengths -> states [B, S, C], and what else there is to say
    decoder: DecoderStack

    def __init__(self, source: nn.Module, target: nn.Module, dropout: float) -> None:
        """The embeddings, and their dropout."""
        super().__init__()
        self.source_embedding = source
        self.target_embedding = target
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, source_lengths: Tensor) -> AttendedMemory:
        states, _ = self.encoder(self.dropout(self.source_embedding(source)), source_lengths)
        return AttendedMemory(*attended(states, source_lengths, self.decoder.attention))

    def begin(self, memory: AttendedMemory, beam_size: int) -> StackState:
        """Nothing but zeros: the source comes in through attention."""
        rows = memory.states.size(0) * beam_size
        return self.decoder.start(tuple(layer.zeros(rows, memory.states) for layer in self.decoder.recurrent()))

    def read(self, tokens: Tensor, memory: AttendedMemory, state: StackState) -> ReadOn:
        embedded = self.dropout(self.target_embedding(tokens))  # [N, T, E]
        hidden, weights, after = self.decoder(embedded, memory, state)
        return hidden, () if weights is None else (weights,), after


def asking_and_reading(
    layer: RecurrentLayer, attention: RecurrentAttention, embedded: Tensor, source: AttendedMemory, state: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A layer whose output at one position asks for the context that is part of its input at the next one.

    embedded [N, T, E] -> inputs [N, T, C + E], outputs [N, T, H], weights [B, N/B * T, S] (T > 1 only where N = B), and
    the state after the last position.
    """
    inputs, outputs, weights = [], [], []
    for piece in embedded.unbind(1):
        queries = layer.split(state)[0].view(source.states.size(0), -1, layer.hidden_size)  # [B, K, H]
        contexts, weight = attention(queries, source.keys, source.states, source.bias)
        x = torch.cat([contexts.flatten(0, 1), piece], dim=-1)[:, None]  # [N, 1, C + E]
        output, state = layer(x, state)
        inputs.append(x)
        outputs.append(output)
        weights.append(weight)
    return torch.cat(inputs, dim=1), torch.cat(outputs, dim=1), torch.cat(weights, dim=1), state


def initialise(model: nn.Module, init_range: float | None) -> None:
    """Uniform within plus and minus ``init_range``, or what the parts chose."""
    if init_range is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-init_range, init_range)
