"""Recurrent encoder-decoders, from a bare last state to attention that feeds back.

Sutskever et al. 2014, Cho et al. 2014, Bahdanau et al. 2015, Luong et al. 2015, and the textbook steps between them.
Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, E embedding, P parts of a state, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

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
from nmt.models import models
from nmt.models.recurrent.attentive_recurrent import AttendedMemory, decoded
from nmt.models.recurrent.decoders import Position, attended
from nmt.models.recurrent.layers import States, reverse_within_lengths
from nmt.models.recurrent.lstm_config import LSTMConfig
from nmt.models.recurrent.parts import (
    build_bridge,
    build_decoder,
    build_embeddings,
    build_encoder,
    build_output,
    initialise,
)


@dataclass
class LSTMMemory(AttendedMemory):
    """Besides, the states that the decoder starts from."""

    first: States  # [B, P, H] by layer


@dataclass
class LSTMState(DecoderState):
    """Where the decoder is."""

    position: Position


@models.register("lstm", LSTMConfig)
class LSTM(EncoderDecoder):
    """A recurrent encoder, a bridge, and a decoder with or without attention; which ones, the configuration says."""

    def __init__(self, config: LSTMConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = config.hidden_size
        self.reverse_source = config.reverse_source
        self.peeky = config.peeky
        self.source_embedding, self.target_embedding = build_embeddings(config, sizes)
        self.dropout = Dropout(config.dropout)
        self.encoder = build_encoder(config)
        self.bridge = build_bridge(config)
        self.decoder = build_decoder(config)
        self.output = build_output(config, self.decoder.readout.size, self.target_embedding, sizes)
        initialise(self, config.init_range)

    def encode(self, source: Tensor, source_lengths: Tensor) -> LSTMMemory:
        ids = reverse_within_lengths(source, source_lengths) if self.reverse_source else source
        states, last = self.encoder(self.dropout(self.source_embedding(ids)), source_lengths)
        if self.reverse_source:  # back into the order of the source, for whoever looks at the attention
            states = reverse_within_lengths(states, source_lengths)
        summary = last[-1][:, 0] if self.peeky else None
        read = attended(states, source_lengths, self.decoder.attention, summary)
        return LSTMMemory(read, self.bridge(last))

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, LSTMMemory)
        embedded = self.dropout(self.target_embedding(batch.target_in))
        hidden, weights = self.decoder(embedded, memory.source, self.decoder.first(memory.first))
        return decoded(hidden, weights, batch, attention)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, LSTMMemory)
        restricted = None if vocabulary is None else self.output.restrict(vocabulary)
        layers = tuple(state.repeat_interleave(beam_size, dim=0) for state in memory.first)
        return replace(memory, output=restricted), LSTMState(self.decoder.first(layers))

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, LSTMMemory) and isinstance(state, LSTMState)
        embedded = self.dropout(self.target_embedding(tokens)).view(memory.source.states.size(0), -1, self._embedding)
        hidden, weights, position = self.decoder.step(embedded, memory.source, state.position)
        scores = self.scores(hidden.flatten(0, 1), memory.output)
        asked = weights.flatten(0, 1) if attention and weights is not None else None  # [N, S]
        return StepOutput(scores, False, LSTMState(position), asked)

    @property
    def _embedding(self) -> int:
        return self.target_embedding.weight.size(1)
