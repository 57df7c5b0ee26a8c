"""Recurrent encoder-decoders, without attention and with several kinds of it.

Sutskever et al. 2014, Cho et al. 2014, Bahdanau et al. 2015, Luong et al. 2015, and combinations of them.
Shapes: B sentences, K beam, N = B*K hypotheses (K = 1 in training), S source positions, T target positions, E embedding,
P parts of a state, H hidden size, C context, Z summary, D width of the readout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.errors import UsageError
from nmt.interface import OutputLayer, VocabularySizes
from nmt.layers.dropout import Dropout
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
    DecoderResult,
    DecoderStack,
    StackState,
    attended,
    initialize,
)
from nmt.models.recurrent.config import AttentionKind, BridgeKind, CellKind, ContextPath, LSTMConfig, Merge, ReadoutKind
from nmt.models.recurrent.layers import (
    BidirectionalLayer,
    DirectedLayer,
    GRULayer,
    LSTMLayer,
    RecurrentEncoder,
    RecurrentLayer,
    RecurrentStack,
    States,
    averaged,
    concatenated,
    reverse_within_lengths,
)


class Readout(nn.Module):
    """The input of the output layer: the concatenation of context, decoder state and more, without a further layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x


class TanhReadout(Readout):
    """tanh(W [c; h]): Luong et al. 2015, equation 5."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(size)
        self.linear = nn.Linear(input_size, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class MaxoutReadout(Readout):
    """The larger of each pair of 2D linear maps: Bahdanau et al. 2015, section A.2.2."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(size)
        self.linear = nn.Linear(input_size, 2 * size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pairs: Tensor = self.linear(x)
        return pairs.view(*pairs.shape[:-1], self.size, 2).amax(-1)


class AttentiveDecoder(DecoderStack):
    """A recurrent stack, an attention and a readout."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        size, attention = config.hidden_size, _attention(config)
        summary = config.states_size if config.peeky else 0
        # The readout may also read the last token's embedding and the context.
        self.reads_embedding, self.reads_context = config.readout_embedding, config.context is not ContextPath.input
        read = attention.context_size if self.reads_context else 0
        read += config.embedding_size if self.reads_embedding else 0
        readout = _readout(config, read + size + summary)
        fed = {ContextPath.readout: 0, ContextPath.feeding: readout.size}.get(config.context, attention.context_size)
        inputs = [config.embedding_size + fed + summary, *[size] * (config.num_layers - 1)]
        layers = [_CELLS[config.cell](width, size) for width in inputs]
        self.stack = RecurrentStack(layers, config.dropout, config.residual_from)
        self.attention, self.readout = attention, readout
        self.dropout = Dropout(config.dropout)

    def recurrent(self) -> Iterable[RecurrentLayer]:
        return self.stack.layers

    def attend(self, queries: Tensor, source: AttendedMemory) -> tuple[Tensor, Tensor | None]:
        """[N, T, H] -> contexts [N, T, C], weights [B, N/B * T, S]; the K hypotheses of a sentence are K queries."""
        sentences = len(source.states)
        by_sentence = queries if len(queries) == sentences else queries.view(sentences, -1, queries.size(-1))
        contexts, weights = self.attention(by_sentence, source.keys, source.states, source.bias)
        return contexts.view(*queries.shape[:2], -1), weights

    def read_out(self, context: Tensor, state: Tensor, embedded: Tensor, source: AttendedMemory) -> Tensor:
        """Each [N, T, ...] -> [N, T, D]"""
        parts = [context, state] if self.reads_context else [state]
        if self.reads_embedding:
            parts.append(embedded)
        return self.dropout(self.readout(concatenated_with(source.summary, *parts)))


class ContextAfter(AttentiveDecoder):
    """Attention after the recurrence, whose input has no context: the recurrence runs over a whole target at once."""

    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        states, layers = self.stack(concatenated_with(source.summary, embedded), state.layers)
        contexts, weights = self.attend(states, source)
        return self.read_out(contexts, states, embedded, source), weights, StackState(layers)


class StepwiseDecoder(AttentiveDecoder):
    """A decoder whose input depends on the previous step's output, so that it runs step by step."""

    @abstractmethod
    def step(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        """One position: [N, 1, E]"""

    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        hidden, weights = [], []
        for x in torch.split(embedded, 1, dim=1):
            output, weight, state = self.step(x, source, state)
            hidden.append(output)
            weights.append(weight)
        maps = None if weights[0] is None else torch.cat([weight for weight in weights if weight is not None], dim=1)
        return torch.cat(hidden, dim=1), maps, state


class ContextFirst(StepwiseDecoder):
    """The previous state is the query; the context is part of the step's input: Bahdanau et al. 2015, section 3.1."""

    def step(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        contexts, weights = self.attend(state.layers[-1][:, :1], source)
        states, layers = self.stack(concatenated_with(source.summary, embedded, contexts), state.layers)
        return self.read_out(contexts, states, embedded, source), weights, StackState(layers)


class ReadoutFed(StepwiseDecoder):
    """Input feeding: the readout is part of the next step's input. Luong et al. 2015, section 3.3."""

    def start(self, layers: States) -> StackState:
        return StackState(layers, layers[0].new_zeros(layers[0].size(0), self.readout.size))

    def step(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        assert state.fed is not None
        states, layers = self.stack(concatenated_with(source.summary, embedded, state.fed[:, None]), state.layers)
        contexts, weights = self.attend(states, source)
        hidden = self.read_out(contexts, states, embedded, source)
        return hidden, weights, StackState(layers, hidden[:, 0])


def concatenated_with(summary: Tensor | None, *parts: Tensor) -> Tensor:
    """Concatenate parts [N, T, ...], and the summary [B, Z] of each sentence at every position."""
    if summary is not None:
        rows, positions = parts[0].shape[:2]
        summary = summary.repeat_interleave(rows // summary.size(0), dim=0)
        parts = (*parts, summary[:, None].expand(-1, positions, -1))
    return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


# Bridges: the encoder's last states by layer [B, P, H] -> the decoder's initial states by layer [B, P, H].


class ZeroBridge(nn.Module):
    """Zero initial states: the decoder reads the source only through attention."""

    def __init__(self, num_layers: int, parts: int, size: int) -> None:
        super().__init__()
        self.num_layers, self.parts, self.size = num_layers, parts, size

    def forward(self, last: States) -> States:
        return tuple(last[-1].new_zeros(last[-1].size(0), self.parts, self.size) for _ in range(self.num_layers))


class DenseBridge(nn.Module):
    """tanh(W h) of the encoder's last state, with a separate W for each layer and part of its state.

    Bahdanau et al. 2015, section A.2.2, where h is the state of the backward direction; ``first``: its first component.
    """

    def __init__(self, encoder_size: int, num_layers: int, parts: int, size: int, first: int = 0) -> None:
        super().__init__()
        self.num_layers, self.parts, self.size, self.first = num_layers, parts, size, first
        self.linear = nn.Linear(encoder_size - first, num_layers * parts * size, bias=False)

    def forward(self, last: States) -> States:
        h = last[-1][:, 0, self.first :]
        states = torch.tanh(self.linear(h)).view(-1, self.num_layers, self.parts, self.size)
        return tuple(states.unbind(1))


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

    def layer(width: int) -> DirectedLayer | BidirectionalLayer:
        if not config.bidirectional:
            return DirectedLayer(cell(width, size))
        output = size // 2 if config.merge is Merge.concat else size
        return BidirectionalLayer(cell(width, output), cell(width, output), _MERGES[config.merge])

    inputs = [config.embedding_size, *[size] * (config.num_layers - 1)]
    return RecurrentEncoder([layer(width) for width in inputs], config.dropout, config.residual_from)


def build_bridge(config: LSTMConfig) -> nn.Module:
    """Build the module from the encoder's last states to the decoder's initial states."""
    if config.bridge is BridgeKind.copy:  # the encoder's last states: Sutskever et al. 2014
        return nn.Identity()
    sizes = config.num_layers, _CELLS[config.cell].parts, config.hidden_size
    if config.bridge is BridgeKind.zero:
        return ZeroBridge(*sizes)
    first = config.states_size // 2 if config.bridge is BridgeKind.backward else 0
    return DenseBridge(config.states_size, *sizes, first)


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
            f"shared embeddings of width {config.embedding_size} cannot read a readout of width {readout_size}; set "
            f"model.readout=tanh and model.readout_size={config.embedding_size}"
        )
    return TiedOutput(target)


@dataclass
class LSTMMemory(AttendedMemory):
    """The encoder output and the initial states of the decoder."""

    first: States  # [B, P, H] by layer


@models.register("lstm", LSTMConfig)
class LSTM(AttentiveRecurrent):
    """A recurrent encoder, a bridge, and a decoder with or without attention."""

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
        self.decoder = _DECODERS[config.context](config)
        self.output = build_output(config, self.decoder.readout.size, target, sizes)
        initialize(self, config.init_range)
        if config.residual_from is not None and config.residual_from > config.num_layers:
            self.ignored = (f"model.residual_from={config.residual_from}",)

    def encode(self, source: Tensor, source_lengths: Tensor) -> LSTMMemory:
        ids = reverse_within_lengths(source, source_lengths) if self.reverse_source else source
        states, last = self.encoder(self.dropout(self.source_embedding(ids)), source_lengths)
        if self.reverse_source:  # back to source order, for the attention maps
            states = reverse_within_lengths(states, source_lengths)
        summary = last[-1][:, 0] if self.peeky else None
        read = attended(states, source_lengths, self.decoder.attention)
        return LSTMMemory(*read, self.bridge(last), summary=summary)

    def begin(self, memory: AttendedMemory, beam_size: int) -> StackState:
        assert isinstance(memory, LSTMMemory)
        return self.decoder.start(tuple(state.repeat_interleave(beam_size, dim=0) for state in memory.first))
