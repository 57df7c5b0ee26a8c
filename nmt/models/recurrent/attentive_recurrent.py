"""What recurrent models with one attention have in common; they bring an encoder and a decoder's stack of their own.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
E embedding, P parts of a state, H hidden size, C width of the encoder's states, D width of the output layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.interface import (
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    StepOutput,
    VocabularySizes,
)
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Embedding
from nmt.layers.padding import padding_bias
from nmt.layers.recurrent_attention import ContentAttention, RecurrentAttention
from nmt.models.output_layers import LinearOutput, ScoredMemory, decoded
from nmt.models.recurrent.layers import RecurrentLayer, States
from nmt.trees import RowTree


@dataclass
class Attended(RowTree):
    """What a decoder reads of the source at every step: B rows."""

    states: Tensor  # [B, S, C]
    keys: Tensor  # [B, S, ...] what the attention needs of them
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding
    summary: Tensor | None = None  # [B, Z] the encoder's last state, if the decoder sees it at every step


def attended(states: Tensor, lengths: Tensor, attention: RecurrentAttention, summary: Tensor | None = None) -> Attended:
    """The encoder's states [B, S, C] of sentences of these lengths, as ``attention`` reads them."""
    bias = padding_bias(lengths, states.size(1), states.dtype)[:, None]  # [B, 1, S]
    return Attended(states, attention.project(states), bias, summary)


@dataclass
class AttendedMemory(ScoredMemory):
    """What the encoder read, in the order of the source."""

    source: Attended


@dataclass
class StackState(DecoderState):
    """The states of all decoder layers."""

    layers: States  # [N, P, H] by layer


class DecoderStack(nn.Module, ABC):
    """Recurrent layers and the attention that some of them use."""

    attention: ContentAttention

    @abstractmethod
    def start(self, rows: int, like: Tensor) -> States:
        """Nothing but zeros, in the type and on the device of ``like``: the source comes in through attention."""

    @abstractmethod
    def forward(self, embedded: Tensor, source: Attended, layers: States) -> tuple[Tensor, Tensor, States]:
        """embedded [N, T, E] -> [N, T, D], weights [B, N/B * T, S], and the states after the last position.

        Either N = B (teacher forcing) or T = 1 (a step).
        """


class AttentiveRecurrent(EncoderDecoder, ABC):
    """Embeddings, output layer, and all of decoding that follows from a stack that starts from zeros."""

    decoder: DecoderStack

    def __init__(self, sizes: VocabularySizes, embedding_size: int, output_size: int, dropout: float) -> None:
        super().__init__()
        self.source_embedding = Embedding(sizes.source, embedding_size)
        self.target_embedding = Embedding(sizes.target, embedding_size)
        self.dropout = Dropout(dropout)
        self.output = LinearOutput.with_bias(output_size, sizes.target)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, AttendedMemory)
        embedded = self.dropout(self.target_embedding(batch.target_in))
        first = self.decoder.start(embedded.size(0), memory.source.states)
        hidden, weights, _ = self.decoder(embedded, memory.source, first)
        return decoded(hidden, batch, attention, (weights,))

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, AttendedMemory)
        states = memory.source.states
        return memory.scored_by(self.output, vocabulary), StackState(
            self.decoder.start(states.size(0) * beam_size, states)
        )

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, AttendedMemory) and isinstance(state, StackState)
        embedded = self.dropout(self.target_embedding(tokens))[:, None]  # [N, 1, E]
        hidden, weights, layers = self.decoder(embedded, memory.source, state.layers)
        scores = self.scores(hidden[:, 0], memory.output)
        asked = weights.flatten(0, 1) if attention else None  # [N, S]
        return StepOutput(scores, False, StackState(layers), asked)


def asking_and_reading(
    layer: RecurrentLayer, attention: RecurrentAttention, embedded: Tensor, source: Attended, state: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A layer whose output at one position asks for the context that is part of its input at the next one.

    embedded [N, T, E] -> inputs [N, T, C + E], outputs [N, T, H], weights [B, N/B * T, S] (T > 1 only where N = B), and
    the state after the last position.
    """
    inputs, outputs, weights = [], [], []
    for piece in embedded.unbind(1):
        queries = layer.output_of(state).view(source.states.size(0), -1, layer.hidden_size)  # [B, K, H]
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
