"""The parts of the recurrent model: the one place that chooses them by its options."""

from __future__ import annotations

import torch
from torch import nn

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
from nmt.layers.sharing import shares_embeddings
from nmt.models.output_layers import LinearOutput, TiedOutput
from nmt.models.recurrent.bridges import Bridge, CopyBridge, DenseBridge, ZeroBridge
from nmt.models.recurrent.decoders import (
    AttentiveDecoder,
    ContextAfter,
    ContextFirst,
    MaxoutReadout,
    PlainReadout,
    Readout,
    ReadoutFed,
    TanhReadout,
)
from nmt.models.recurrent.layers import (
    Averaged,
    BothWays,
    Concatenated,
    GRULayer,
    LSTMLayer,
    OneWay,
    RecurrentDecoder,
    RecurrentEncoder,
    Summed,
)
from nmt.models.recurrent.lstm_config import (
    AttentionKind,
    BridgeKind,
    CellKind,
    ContextPath,
    LSTMConfig,
    Merge,
    ReadoutKind,
)


def build_embeddings(config: LSTMConfig, sizes: VocabularySizes) -> tuple[nn.Module, Embedding]:
    """Of the source and of the target."""
    target = Embedding(sizes.target, config.embedding_size)
    if shares_embeddings(config.share_all_embeddings, sizes.shared):
        return Borrowed(target), target
    return Embedding(sizes.source, config.embedding_size), target


def build_encoder(config: LSTMConfig) -> RecurrentEncoder:
    size = config.states_size
    inputs = [config.embedding_size, *[size] * (config.num_layers - 1)]
    layers = [_encoder_layer(config, input_size, size) for input_size in inputs]
    return RecurrentEncoder(layers, config.dropout, config.residual_from)


def _encoder_layer(config: LSTMConfig, input_size: int, size: int) -> OneWay | BothWays:
    cell = _CELLS[config.cell]
    if not config.bidirectional:
        return OneWay(cell(input_size, size))
    own = size // 2 if config.merge is Merge.concat else size
    return _MERGES[config.merge](cell(input_size, own), cell(input_size, own))


def build_bridge(config: LSTMConfig) -> Bridge:
    cell, encoder_size = _CELLS[config.cell], config.states_size
    if config.bridge is BridgeKind.copy:
        return CopyBridge()
    if config.bridge is BridgeKind.zero:
        return ZeroBridge(config.num_layers, cell.parts, config.hidden_size)
    first = encoder_size // 2 if config.bridge is BridgeKind.backward else 0
    return DenseBridge(encoder_size, config.num_layers, cell.parts, config.hidden_size, first)


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
    content: ContentAttention
    if config.attention is AttentionKind.dot:
        content = DotAttention(encoder_size)
    elif config.attention is AttentionKind.general:
        content = GeneralAttention(size, encoder_size)
    else:
        content = AdditiveAttention(size, encoder_size)
    return content if config.attention_window is None else PredictedWindow(content, size, config.attention_window)


def _readout(config: LSTMConfig, input_size: int) -> Readout:
    if config.readout is ReadoutKind.plain:
        return PlainReadout(input_size)
    kind = TanhReadout if config.readout is ReadoutKind.tanh else MaxoutReadout
    return kind(input_size, config.readout_size or config.hidden_size)


def build_output(config: LSTMConfig, readout_size: int, target: Embedding, sizes: VocabularySizes) -> OutputLayer:
    if not (config.share_decoder_embeddings or config.share_all_embeddings):
        output = nn.Linear(readout_size, sizes.target)
        return LinearOutput(output.weight.detach(), output.bias.detach())
    if readout_size != config.embedding_size:
        raise UsageError(
            f"shared embeddings of {config.embedding_size} cannot read a readout of {readout_size}; set "
            f"model.readout=tanh and model.readout_size={config.embedding_size}"
        )
    return TiedOutput(target)


def initialise(model: nn.Module, init_range: float | None) -> None:
    """Uniform within plus and minus ``init_range``, or what the parts chose."""
    if init_range is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-init_range, init_range)


_CELLS: dict[CellKind, type[LSTMLayer] | type[GRULayer]] = {CellKind.lstm: LSTMLayer, CellKind.gru: GRULayer}
_DECODERS: dict[ContextPath, type[AttentiveDecoder]] = {
    ContextPath.readout: ContextAfter,
    ContextPath.input: ContextFirst,
    ContextPath.both: ContextFirst,
    ContextPath.feeding: ReadoutFed,
}
_MERGES: dict[Merge, type[BothWays]] = {Merge.concat: Concatenated, Merge.sum: Summed, Merge.mean: Averaged}
