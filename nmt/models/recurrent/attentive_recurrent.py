"""What recurrent models with one attention have in common; they bring an encoder and a decoder's stack of their own.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
E embedding, P parts of a state, H hidden size, C width of the encoder's states, D width of the output layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor, nn

from nmt.interface import (
    AttentionMaps,
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    Scoring,
    StepOutput,
    VocabularySizes,
)
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Embedding
from nmt.layers.padding import real_rows
from nmt.layers.recurrent_attention import ContentAttention
from nmt.models.output_layers import LinearOutput
from nmt.models.recurrent.decoders import Attended
from nmt.models.recurrent.layers import States


@dataclass
class AttendedMemory(Memory):
    """What the encoder read, in the order of the source."""

    source: Attended
    output: Scoring | None = field(default=None, kw_only=True)  # over the short list, if there is one


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
        output = nn.Linear(output_size, sizes.target)
        self.output = LinearOutput(output.weight.detach(), output.bias.detach())

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, AttendedMemory)
        embedded = self.dropout(self.target_embedding(batch.target_in))
        first = self.decoder.start(embedded.size(0), memory.source.states)
        hidden, weights, _ = self.decoder(embedded, memory.source, first)
        return decoded(hidden, weights, batch, attention)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, AttendedMemory)
        restricted = None if vocabulary is None else self.output.restrict(vocabulary)
        states = memory.source.states
        return replace(memory, output=restricted), StackState(self.decoder.start(states.size(0) * beam_size, states))

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, AttendedMemory) and isinstance(state, StackState)
        embedded = self.dropout(self.target_embedding(tokens))[:, None]  # [N, 1, E]
        hidden, weights, layers = self.decoder(embedded, memory.source, state.layers)
        scores = self.scores(hidden[:, 0], memory.output)
        asked = weights.flatten(0, 1) if attention else None  # [N, S]
        return StepOutput(scores, False, StackState(layers), asked)


def decoded(
    hidden: Tensor,
    weights: Tensor | None,
    batch: Batch,
    attention: AttentionRequest | None,
    auxiliary: Mapping[str, Tensor] | None = None,
) -> DecoderOutput:
    """The result of teacher forcing: readouts [B, T, D], and the weights [B, T, S] of the one attention if there is one."""
    real = real_rows(hidden, batch.target_lengths, batch.target_offsets, batch.num_tokens)  # [M, D]
    if attention is None:
        return DecoderOutput(real, auxiliary=auxiliary or {})
    asked = {"cross": (weights[:, None],)} if weights is not None and "cross" in attention.kinds else {}
    return DecoderOutput(real, AttentionMaps(asked), auxiliary or {})
