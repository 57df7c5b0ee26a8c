"""The options of recurrent models, and their conflicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import Refusals, refuse, require_not_negative, require_positive
from nmt.config.option import FlagKind, ShortRepr, flag, option
from nmt.errors import UsageError
from nmt.models import models
from nmt.models.config import at_most, check_sizes


class CellKind(Enum):
    """The recurrence."""

    lstm = "lstm"
    gru = "gru"


class Merge(Enum):
    """The merge of an encoder layer's two directions."""

    concat = "concat"  # concatenated, each with half of the width
    sum = "sum"
    mean = "mean"


class AttentionKind(Enum):
    """The score of a decoder state and an encoder state."""

    dot = "dot"
    general = "general"
    additive = "additive"
    none = "none"


class ContextPath(Enum):
    """The use of the attention's context."""

    readout = "readout"  # in the readout of the same step
    input = "input"  # in the step's input; the previous state is the query
    both = "both"  # in the step's input and in the readout (Bahdanau)
    feeding = "feeding"  # in the readout, which is part of the next step's input (Luong's input feeding)


class ReadoutKind(Enum):
    """The input of the output layer, from context c and decoder state h."""

    plain = "plain"  # [c; h]
    tanh = "tanh"  # tanh(W [c; h]), Luong et al. 2015, equation 5
    maxout = "maxout"  # Bahdanau et al. 2015, section A.2.2


class BridgeKind(Enum):
    """The initial states of the decoder."""

    copy = "copy"  # the last states of the encoder, layer by layer
    dense = "dense"  # tanh(W h) of the encoder's last state
    backward = "backward"  # tanh(W h) of the backward direction's last state
    zero = "zero"


@models.declare("lstm", "lstm")
@dataclass
class LSTMConfig(ShortRepr):
    """Sizes and variants of the recurrent model."""

    cell: CellKind = option(CellKind.lstm, help="Recurrent cell: lstm or gru")
    embedding_size: int = option(512, help="Width of the embeddings")
    hidden_size: int = option(512, help="Hidden size of the decoder and of the encoder's states")
    encoder_size: int | None = option(None, help="Width of the encoder's states; null: hidden_size")
    num_layers: int = option(1, help="Number of layers in the encoder and in the decoder")
    residual_from: int | None = option(None, help="First layer with a residual connection, counted from 1; null: none")
    bidirectional: bool = option(False, help="Read the source in both directions", flag="--encoder-bidirectional")
    merge: Merge = option(Merge.concat, help="Merge of both directions: concat, sum or mean")
    reverse_source: bool = option(False, help="Read the source backwards, from the end of each sentence")
    bridge: BridgeKind = option(
        BridgeKind.copy,
        help="Initial states of the decoder: copy, dense, backward (dense, from the backward direction) or zero",
    )
    attention: AttentionKind = option(AttentionKind.dot, help="Attention score: dot, general, additive or none")
    attention_window: int | None = option(
        None, help="Distance from a predicted center that attention covers (Luong's local-p); null: the whole source"
    )
    context: ContextPath = option(
        ContextPath.readout, help="Use of the attention context: readout, input, both or feeding"
    )
    peeky: bool = option(False, help="Feed the encoder's last state to every decoder step and to the readout")
    readout: ReadoutKind = option(ReadoutKind.plain, help="Readout of context and state: plain, tanh or maxout")
    readout_size: int | None = option(None, help="Width of the tanh or maxout readout; null: hidden_size")
    readout_embedding: bool = option(False, help="Feed the last token's embedding to the readout")
    share_all_embeddings: bool = flag(
        False, help="Share one matrix between source, target and output; needs a joint vocabulary", kind=FlagKind.switch
    )
    share_decoder_embeddings: bool = option(
        False, help="Share one matrix between target and output", flag="--share-decoder-input-output-embed"
    )
    init_range: float | None = option(
        None, help="Bound r of the uniform initialization of parameters in [-r, r]; null: torch's defaults"
    )
    dropout: float = flag(0.1, help="Dropout of the embeddings, between layers and before the output layer")

    def __post_init__(self) -> None:
        check_sizes(self, LSTMConfig)
        require_positive("model", init_range=self.init_range)
        refuse(*_conflicts(self))

    @property
    def states_size(self) -> int:
        """Width of the encoder's states."""
        return self.encoder_size or self.hidden_size

    def shrink(self) -> LSTMConfig:
        share = self.share_all_embeddings or self.share_decoder_embeddings
        return replace(
            self,
            embedding_size=16 if share or self.embedding_size == self.hidden_size else 10,
            hidden_size=16,
            encoder_size=self.encoder_size and 20,
            num_layers=min(self.num_layers, 3),
            attention_window=self.attention_window and 2,
            readout_size=self.readout_size and (16 if share else 12),
        )


def _conflicts(config: LSTMConfig) -> Refusals:
    """Yield conflicts between options."""
    size, encoder_size = config.hidden_size, config.states_size
    width_name = "hidden_size" if config.encoder_size is None else "encoder_size"
    attends = config.attention is not AttentionKind.none
    concatenated = config.bidirectional and config.merge is Merge.concat
    first_residual = config.residual_from == 1
    yield (
        concatenated and encoder_size % 2 != 0,
        f"{width_name}={encoder_size} is odd, and each direction of a bidirectional encoder takes half; use an even "
        f"model.{width_name}, or model.merge=sum",
    )
    yield (
        config.attention is AttentionKind.dot and encoder_size != size,
        f"attention=dot compares states of width {encoder_size} and {size}; use model.attention=general or "
        f"additive, or leave model.encoder_size out",
    )
    yield (
        config.bridge is BridgeKind.copy and encoder_size != size,
        f"bridge=copy cannot start a decoder of width {size} from states of width {encoder_size}; use model.bridge=dense, "
        f"or leave model.encoder_size out",
    )
    yield (
        config.bridge is BridgeKind.backward and not concatenated,
        "bridge=backward needs the backward direction's own state; set model.bidirectional=true and "
        "model.merge=concat, or use model.bridge=dense",
    )
    yield (
        config.bridge is BridgeKind.backward and not attends and not config.peeky,
        "bridge=backward without attention ignores the forward direction; use "
        "model.bridge=dense, model.peeky=true, or choose model.attention",
    )
    yield (
        config.bridge is BridgeKind.zero and not attends and not config.peeky,
        "bridge=zero without attention hides the source from the decoder; use model.bridge=copy, "
        "model.peeky=true, or choose model.attention",
    )
    yield (
        not attends and config.context is not ContextPath.readout,
        f"context={config.context.name} needs attention; choose model.attention, or leave model.context out",
    )
    yield (
        not attends and config.attention_window is not None,
        f"attention_window={config.attention_window} needs attention; choose model.attention, or omit it",
    )
    yield (
        first_residual and (config.embedding_size != size or encoder_size != size),
        f"residual_from=1 adds embeddings of width {config.embedding_size} to states of width {encoder_size} in the "
        f"encoder and {size} in the decoder; make them equal, or use model.residual_from=2",
    )
    yield (
        first_residual and (config.peeky or config.context is not ContextPath.readout),
        "residual_from=1 cannot add the first layer's input, which includes more than the embedding; use "
        "model.residual_from=2",
    )


@models.declare("gnmt", "gnmt")
@dataclass
class GNMTConfig(ShortRepr):
    """Sizes; the defaults are those of the paper."""

    encoder_layers: int = option(8, help="Number of encoder LSTM layers; the first reads in both directions")
    decoder_layers: int = option(8, help="Number of decoder LSTM layers")
    embedding_size: int = option(1024, help="Width of the embeddings")
    hidden_size: int = option(1024, help="Width of every layer, and of each direction of the first one")
    residual_from: int = option(3, help="First layer with a residual connection, counted from 1")
    init_range: float = option(0.04, help="Bound r of the uniform initialization of parameters in [-r, r]")
    dropout: float = flag(0.2, help="Dropout of every layer's input and before the output layer")

    def __post_init__(self) -> None:
        check_sizes(self, GNMTConfig)
        require_positive("model", init_range=self.init_range)
        if self.decoder_layers < 2:
            raise UsageError(
                f"decoder_layers={self.decoder_layers} leaves no layer that reads the context; use 2 or more"
            )
        if self.residual_from < 3:
            raise UsageError(
                f"residual_from={self.residual_from} would add inputs of a different width: layer 1 reads embeddings, "
                f"layer 2 both directions; use 3 or more"
            )

    def shrink(self) -> GNMTConfig:
        return replace(self, **at_most(self, encoder_layers=4, decoder_layers=4), embedding_size=10, hidden_size=12)


@models.declare("deep_att", "deep_att")
@dataclass
class DeepAttConfig(ShortRepr):
    """Sizes; the defaults are those of the paper."""

    encoder_layers: int = option(9, help="Number of layers in each of the encoder's two columns")
    decoder_layers: int = option(7, help="Number of decoder layers")
    embedding_size: int = option(256, help="Width of the embeddings")
    hidden_size: int = option(512, help="Width of every layer")
    dropout: float = flag(0.1, help="Dropout of the states between layers")

    def __post_init__(self) -> None:
        check_sizes(self, DeepAttConfig)
        if self.hidden_size % 2:
            raise UsageError(
                f"hidden_size={self.hidden_size} is odd, but the encoder output has 10/4 of that width; "
                f"use an even model.hidden_size"
            )

    @property
    def memory_size(self) -> int:
        """A quarter of [h, f] of both columns: 1,280 in the paper."""
        return 10 * self.hidden_size // 4

    def shrink(self) -> DeepAttConfig:
        return replace(self, **at_most(self, encoder_layers=3, decoder_layers=3), embedding_size=8, hidden_size=10)


@models.declare("lstm_moe", "lstm_moe")
@dataclass
class LSTMMoEConfig(ShortRepr):
    """Sizes; the defaults are the paper's flat mixture."""

    width: int = option(512, help="Width of embeddings, layer outputs, experts and attention")
    cell_size: int = option(2048, help="Width of the cells, projected to `width`")
    num_experts: int = option(32, help="Number of experts in each of the two mixtures")
    experts_per_token: int = option(4, help="Number of experts that read each token")
    expert_size: int = option(2048, help="Inner width of an expert")
    importance_weight: float = option(0.01, help="Weight of the loss that balances the experts' importance")
    load_weight: float = option(0.01, help="Weight of the loss that balances the experts' load")
    dropout: float = flag(0.4, help="Dropout of every layer's output and of the embeddings")

    def __post_init__(self) -> None:
        check_sizes(self, LSTMMoEConfig)
        require_not_negative("model", importance_weight=self.importance_weight, load_weight=self.load_weight)
        refuse(
            (
                self.experts_per_token > self.num_experts,
                f"experts_per_token={self.experts_per_token} is more than num_experts={self.num_experts}; lower it",
            ),
            (
                self.width >= self.cell_size,
                f"cell_size={self.cell_size} must be more than width={self.width}, to which it is projected",
            ),
        )

    def shrink(self) -> LSTMMoEConfig:
        small = at_most(self, num_experts=5, experts_per_token=2)
        return replace(self, **small, width=10, cell_size=14, expert_size=8)
