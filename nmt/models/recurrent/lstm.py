"""Recurrent encoder-decoders, from a bare last state to attention that feeds back.

Sutskever et al. 2014, Cho et al. 2014, Bahdanau et al. 2015, Luong et al. 2015, and the textbook steps between them.
Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, E embedding, P parts of a state, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.errors import UsageError
from nmt.interface import OutputLayer, VocabularySizes
from nmt.layers.embeddings import Borrowed, Embedding
from nmt.layers.recurrent_attention import (
    AdditiveAttention,
    ContentAttention,
    DotAttention,
    GeneralAttention,
    NoAttention,
    PredictedWindow,
    RecurrentAttention,
)
from nmt.models import models
from nmt.models.config import shares_embeddings
from nmt.models.output_layers import LinearOutput, TiedOutput
from nmt.models.recurrent.attentive_recurrent import (
    AttendedMemory,
    AttentiveRecurrent,
    StackState,
    attended,
    initialise,
)
from nmt.models.recurrent.config import AttentionKind, BridgeKind, CellKind, ContextPath, LSTMConfig, Merge, ReadoutKind
from nmt.models.recurrent.decoders import (
    AttentiveDecoder,
    ContextAfter,
    ContextFirst,
    DenseBridge,
    MaxoutReadout,
    Readout,
    ReadoutFed,
    TanhReadout,
    ZeroBridge,
)
from nmt.models.recurrent.layers import (
    BothWays,
    GRULayer,
    LSTMLayer,
    OneWay,
    RecurrentDecoder,
    RecurrentEncoder,
    States,
    averaged,
    concatenated,
    reverse_within_lengths,
)

_CELLS: dict[CellKind, type[LSTMLayer] | type[GRULayer]] = {CellKind.lstm: LSTMLayer, CellKind.gru: GRULayer}
_MERGES: dict[Merge, Callable[[Tensor, Tensor], Tensor]] = {
    Merge.concat: concatenated,
    Merge.sum: torch.add,
    Merge.mean: averaged,
}
_DECODERS: dict[ContextPath, type[AttentiveDecoder]] = {
    ContextPath.readout: ContextAfter,
    ContextPath.input: ContextFirst,
    ContextPath.both: ContextFirst,
    ContextPath.feeding: ReadoutFed,
}


def build_encoder(config: LSTMConfig) -> RecurrentEncoder:
    cell, size = _CELLS[config.cell], config.states_size
    own = size // 2 if config.merge is Merge.concat else size

    def layer(width: int) -> OneWay | BothWays:
        if not config.bidirectional:
            return OneWay(cell(width, size))
        return BothWays(cell(width, own), cell(width, own), _MERGES[config.merge])

    inputs = [config.embedding_size, *[size] * (config.num_layers - 1)]
    return RecurrentEncoder([layer(width) for width in inputs], config.dropout, config.residual_from)


def build_bridge(config: LSTMConfig) -> nn.Module:
    """From the encoder's last states to those that the decoder starts from."""
    if config.bridge is BridgeKind.copy:  # each layer where the encoder's ended: Sutskever et al. 2014
        return nn.Identity()
    sizes = config.num_layers, _CELLS[config.cell].parts, config.hidden_size
    if config.bridge is BridgeKind.zero:
        return ZeroBridge(*sizes)
    first = config.states_size // 2 if config.bridge is BridgeKind.backward else 0
    return DenseBridge(config.states_size, *sizes, first)


def build_decoder(config: LSTMConfig) -> AttentiveDecoder:
    size, attention = config.hidden_size, _attention(config)
    summary = config.states_size if config.peeky else 0
    seen = 0 if config.context is ContextPath.input else attention.context_size
    seen += config.embedding_size if config.readout_embedding else 0
    readout = _readout(config, seen + size + summary)
    fed = {ContextPath.readout: 0, ContextPath.feeding: readout.size}.get(config.context, attention.context_size)
    inputs = [config.embedding_size + fed + summary, *[size] * (config.num_layers - 1)]
    cell = _CELLS[config.cell]
    stack = RecurrentDecoder([cell(width, size) for width in inputs], config.dropout, config.residual_from)
    reads_context = config.context is not ContextPath.input
    kind = _DECODERS[config.context]
    return kind(stack, attention, readout, config.dropout, config.readout_embedding, reads_context)


def _attention(config: LSTMConfig) -> RecurrentAttention:
    size, encoder_size = config.hidden_size, config.states_size
    if config.attention is AttentionKind.none:
        return NoAttention()
    content: ContentAttention = DotAttention(encoder_size)
    if config.attention is not AttentionKind.dot:
        kind = GeneralAttention if config.attention is AttentionKind.general else AdditiveAttention
        content = kind(size, encoder_size)
    return content if config.attention_window is None else PredictedWindow(content, size, config.attention_window)


def _readout(config: LSTMConfig, input_size: int) -> Readout:
    if config.readout is ReadoutKind.plain:
        return Readout(input_size)
    kind = TanhReadout if config.readout is ReadoutKind.tanh else MaxoutReadout
    return kind(input_size, config.readout_size or config.hidden_size)


def build_output(config: LSTMConfig, readout_size: int, target: Embedding, sizes: VocabularySizes) -> OutputLayer:
    if not (config.share_decoder_embeddings or config.share_all_embeddings):
        return LinearOutput.with_bias(readout_size, sizes.target)
    if readout_size != config.embedding_size:
        raise UsageError(
            f"shared embeddings of {config.embedding_size} cannot read a readout of {readout_size}; set "
            f"model.readout=tanh and model.readout_size={config.embedding_size}"
        )
    return TiedOutput(target)


@dataclass
class LSTMMemory(AttendedMemory):
    """Besides, the states that the decoder starts from."""

    first: States  # [B, P, H] by layer


@models.register("lstm", LSTMConfig)
class LSTM(AttentiveRecurrent):
    """A recurrent encoder, a bridge, and a decoder with or without attention; which ones, the configuration says."""

    def __init__(self, config: LSTMConfig, sizes: VocabularySizes) -> None:
        target = Embedding(sizes.target, config.embedding_size)
        shared = shares_embeddings(config.share_all_embeddings, sizes.shared)
        source = Borrowed(target) if shared else Embedding(sizes.source, config.embedding_size)
        super().__init__(source, target, config.dropout)
        self.width = config.hidden_size
        self.reverse_source = config.reverse_source
        self.peeky = config.peeky
        self.encoder = build_encoder(config)
        self.bridge = build_bridge(config)
        self.decoder = build_decoder(config)
        self.output = build_output(config, self.decoder.readout.size, target, sizes)
        initialise(self, config.init_range)

    def encode(self, source: Tensor, source_lengths: Tensor) -> LSTMMemory:
        ids = reverse_within_lengths(source, source_lengths) if self.reverse_source else source
        states, last = self.encoder(self.dropout(self.source_embedding(ids)), source_lengths)
        if self.reverse_source:  # back into the order of the source, for whoever looks at the attention
            states = reverse_within_lengths(states, source_lengths)
        summary = last[-1][:, 0] if self.peeky else None
        read = attended(states, source_lengths, self.decoder.attention, summary)
        return LSTMMemory(read, self.bridge(last))

    def begin(self, memory: AttendedMemory, beam_size: int) -> StackState:
        assert isinstance(memory, LSTMMemory)
        return self.decoder.start(tuple(state.repeat_interleave(beam_size, dim=0) for state in memory.first))
