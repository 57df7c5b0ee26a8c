"""An LSTM encoder-decoder with attention: Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
L layers, E embedding, H hidden size, C context, D width of the readout, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

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
from nmt.modules.padding import padding_bias, real_rows
from nmt.modules.recurrent import RecurrentDecoder, RecurrentEncoder, RecurrentState, reverse_within_lengths
from nmt.modules.recurrent_attention import AdditiveAttention, DotAttention, NoAttention, RecurrentAttention


class AttentionKind(Enum):
    """How a decoder state is compared with the encoder's."""

    dot = "dot"
    additive = "additive"
    none = "none"


class ReadoutKind(Enum):
    """What the output layer sees of context c and decoder state h."""

    concat = "concat"  # [c; h]
    tanh = "tanh"  # tanh(W [c; h]), Luong et al. 2015, equation 5


@dataclass
class LSTMConfig:
    """Sizes and variants of the recurrent model."""

    embedding_size: int = option(256, help="width of the embeddings")
    hidden_size: int = option(512, help="hidden size; a bidirectional encoder gives each direction half of it")
    num_layers: int = option(1, help="LSTM layers of the encoder, and of the decoder")
    bidirectional: bool = option(False, help="read the source in both directions", flag="--encoder-bidirectional")
    attention: AttentionKind = option(AttentionKind.dot, help="dot, additive or none")
    readout: ReadoutKind = option(ReadoutKind.concat, help="output layer over the concatenation (concat) or over tanh")
    reverse_source: bool = option(False, help="read the source backwards, from each sentence's own end")
    dropout: float = option(
        0.1, help="dropout of the embeddings, between layers and before the output layer", flag="--dropout"
    )

    def __post_init__(self) -> None:
        require_positive("model", embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        require_positive("model", num_layers=self.num_layers)
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(f"model.dropout={self.dropout} must be at least 0 and less than 1")
        if self.bidirectional and self.hidden_size % 2:
            raise UsageError(
                f"hidden_size={self.hidden_size} is odd, and each direction of a bidirectional encoder takes half; "
                f"use an even model.hidden_size"
            )

    def shrink(self) -> LSTMConfig:
        """The same structure in small sizes, for tests."""
        return replace(self, embedding_size=10, hidden_size=16, num_layers=min(self.num_layers, 2))


@dataclass
class LSTMMemory(Memory):
    """The encoder's states in the order of the source, and the state that the decoder starts from."""

    states: Tensor  # [B, S, H]
    keys: Tensor  # [B, S, ...] what the attention needs of them
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding
    last: RecurrentState  # [B, L, H]
    output: OutputLayer  # over the shortlist, if there is one


@dataclass
class LSTMState(DecoderState):
    """Where the decoder is."""

    recurrent: RecurrentState  # [N, L, H]


@models.register("lstm", LSTMConfig)
class LSTM(EncoderDecoder):
    """The decoder starts from the encoder's last state; attention follows the recurrence and never feeds back."""

    def __init__(self, config: LSTMConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = config.hidden_size
        self.reverse_source = config.reverse_source
        self.source_embedding = Embedding(sizes.source, config.embedding_size)
        self.target_embedding = Embedding(sizes.target, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        self.encoder = RecurrentEncoder(
            config.embedding_size, config.hidden_size, config.num_layers, config.bidirectional, config.dropout
        )
        self.decoder = RecurrentDecoder(config.embedding_size, config.hidden_size, config.num_layers, config.dropout)
        self.attention = _attention(config)
        self.readout = _readout(config, self.attention.context_size + config.hidden_size)
        output = nn.Linear(_readout_size(config, self.attention), sizes.target)
        self.output = LinearOutput(output.weight.detach(), output.bias.detach())

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        ids = reverse_within_lengths(source, source_lengths) if self.reverse_source else source
        states, last = self.encoder(self.dropout(self.source_embedding(ids)), source_lengths)
        if self.reverse_source:  # back into the order of the source, for whoever looks at the attention
            states = reverse_within_lengths(states, source_lengths)
        bias = padding_bias(source_lengths, source.size(1), states.dtype)[:, None]  # [B, 1, S]
        return LSTMMemory(states, self.attention.project(states), bias, last, self.output)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, LSTMMemory)
        states, _ = self.decoder(self.dropout(self.target_embedding(batch.target_in)), memory.last)
        contexts, weights = self.attention(states, memory.keys, memory.states, memory.bias)
        joined = torch.cat([contexts, states], dim=-1)  # [B, T, C + H]
        joined = real_rows(joined, batch.target_lengths, batch.target_offsets, batch.num_tokens)  # [M, C + H]
        maps = (
            {"cross": (weights[:, None],)} if attention and "cross" in attention.kinds and weights is not None else {}
        )
        return DecoderOutput(self._read_out(joined), AttentionMaps(maps) if attention else None)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, LSTMMemory)
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        state = memory.last.map(lambda tensor: tensor.repeat_interleave(beam_size, dim=0))
        return replace(memory, output=output), LSTMState(state)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, LSTMMemory) and isinstance(state, LSTMState)
        embedded = self.dropout(self.target_embedding(tokens))[:, None]  # [N, 1, E]
        states, after = self.decoder(embedded, state.recurrent)
        queries = states.view(memory.states.size(0), -1, states.size(-1))  # [B, K, H]
        contexts, weights = self.attention(queries, memory.keys, memory.states, memory.bias)
        joined = torch.cat([contexts, queries], dim=-1).flatten(0, 1)  # [N, C + H]
        scores = memory.output.logits(self._read_out(joined))
        asked = attention and weights is not None
        return StepOutput(scores, False, LSTMState(after), weights.flatten(0, 1) if asked else None)

    def _read_out(self, joined: Tensor) -> Tensor:
        """[..., C + H] -> [..., D]"""
        hidden: Tensor = self.dropout(self.readout(joined))
        return hidden


def _attention(config: LSTMConfig) -> RecurrentAttention:
    if config.attention is AttentionKind.none:
        return NoAttention()
    kind = AdditiveAttention if config.attention is AttentionKind.additive else DotAttention
    return kind(config.hidden_size)


def _readout(config: LSTMConfig, joined_size: int) -> nn.Module:
    if config.readout is ReadoutKind.concat:
        return nn.Identity()
    return nn.Sequential(nn.Linear(joined_size, config.hidden_size, bias=False), nn.Tanh())


def _readout_size(config: LSTMConfig, attention: RecurrentAttention) -> int:
    return config.hidden_size + (attention.context_size if config.readout is ReadoutKind.concat else 0)
