"""The options of recurrent models, and which of them exclude each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import Rules, refuse, require_not_negative, require_positive
from nmt.config.option import FlagKind, flag, option
from nmt.errors import UsageError
from nmt.models import models
from nmt.models.config import at_most, check_sizes


class CellKind(Enum):
    """The recurrence."""

    lstm = "lstm"
    gru = "gru"


class Merge(Enum):
    """How the two directions of an encoder's layer become one."""

    concat = "concat"  # side by side, each with half of the width
    sum = "sum"
    mean = "mean"


class AttentionKind(Enum):
    """How a decoder state is compared with the encoder's."""

    dot = "dot"
    general = "general"
    additive = "additive"
    none = "none"


class ContextPath(Enum):
    """Where the attention's context goes."""

    readout = "readout"  # to the output layer of the same step
    input = "input"  # the state before a step asks; into the step's input alone
    both = "both"  # likewise, and to the output layer (Bahdanau)
    feeding = "feeding"  # to the readout, which is part of the next step's input (Luong's input feeding)


class ReadoutKind(Enum):
    """What the output layer sees of context c and decoder state h."""

    plain = "plain"  # [c; h]
    tanh = "tanh"  # tanh(W [c; h]), Luong et al. 2015, equation 5
    maxout = "maxout"  # Bahdanau et al. 2015, section A.2.2


class BridgeKind(Enum):
    """What the decoder starts from."""

    copy = "copy"  # each layer from the encoder's layer of the same number
    dense = "dense"  # tanh(W h) of the encoder's last state
    backward = "backward"  # likewise, of the backward direction's last state alone
    zero = "zero"


@models.declare("lstm", "lstm")
@dataclass
class LSTMConfig:
    """Sizes and variants of the recurrent model."""

    cell: CellKind = option(CellKind.lstm, help="lstm or gru")
    embedding_size: int = option(512, help="width of the embeddings")
    hidden_size: int = option(512, help="hidden size of the decoder, and of the encoder's states")
    encoder_size: int | None = option(None, help="width of the encoder's states, if another than hidden_size")
    num_layers: int = option(1, help="layers of the encoder, and of the decoder")
    residual_from: int | None = option(
        None, help="first layer, counted from 1, whose input is added to its output; null: no skip connections"
    )
    bidirectional: bool = option(False, help="read the source in both directions", flag="--encoder-bidirectional")
    merge: Merge = option(Merge.concat, help="how both directions become one: concat, sum or mean")
    reverse_source: bool = option(False, help="read the source backwards, from each sentence's own end")
    bridge: BridgeKind = option(
        BridgeKind.copy, help="what the decoder starts from: copy, dense, backward (of the encoder's end) or zero"
    )
    attention: AttentionKind = option(AttentionKind.dot, help="dot, general, additive or none")
    attention_window: int | None = option(
        None, help="attend only this far around a predicted centre (Luong's local-p); null: to the whole source"
    )
    context: ContextPath = option(
        ContextPath.readout, help="where the attention's context goes: readout, input, both or feeding"
    )
    peeky: bool = option(False, help="every decoder step and the output layer see the encoder's last state")
    readout: ReadoutKind = option(ReadoutKind.plain, help="output layer over context and state: plain, tanh or maxout")
    readout_size: int | None = option(None, help="width of the tanh or maxout readout; null: hidden_size")
    readout_embedding: bool = option(False, help="the readout sees the last piece's embedding too")
    share_all_embeddings: bool = flag(
        False, help="one matrix for source, target and output; needs a joint vocabulary", kind=FlagKind.switch
    )
    share_decoder_embeddings: bool = option(
        False, help="one matrix for target and output", flag="--share-decoder-input-output-embed"
    )
    init_range: float | None = option(
        None, help="every parameter starts uniformly within plus and minus this; null: torch's own ways"
    )
    dropout: float = flag(0.1, help="dropout of the embeddings, between layers and before the output layer")

    def __post_init__(self) -> None:
        check_sizes(self, LSTMConfig)
        require_positive("model", init_range=self.init_range)
        refuse(*_contradictions(self))

    @property
    def states_size(self) -> int:
        """Width of the encoder's states."""
        return self.encoder_size or self.hidden_size

    def shrink(self) -> LSTMConfig:
        """The same structure in small sizes, for tests."""
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


def _contradictions(config: LSTMConfig) -> Rules:
    """What cannot be true together, and what to do."""
    size, encoder_size = config.hidden_size, config.states_size
    width_said = "hidden_size" if config.encoder_size is None else "encoder_size"
    attends = config.attention is not AttentionKind.none
    concatenated = config.bidirectional and config.merge is Merge.concat
    first_residual = config.residual_from == 1
    yield (
        concatenated and encoder_size % 2 != 0,
        f"{width_said}={encoder_size} is odd, and each direction of a bidirectional encoder takes half; use an even "
        f"model.{width_said}, or model.merge=sum",
    )
    yield (
        config.attention is AttentionKind.dot and encoder_size != size,
        f"attention=dot compares states of {encoder_size} with states of {size}; use model.attention=general or "
        f"additive, or leave model.encoder_size out",
    )
    yield (
        config.bridge is BridgeKind.copy and encoder_size != size,
        f"bridge=copy cannot start a decoder of {size} from states of {encoder_size}; use model.bridge=dense, or "
        f"leave model.encoder_size out",
    )
    yield (
        config.bridge is BridgeKind.backward and not concatenated,
        "bridge=backward needs the backward direction's own state; set model.bidirectional=true and "
        "model.merge=concat, or use model.bridge=dense",
    )
    yield (
        config.bridge is BridgeKind.backward and not attends and not config.peeky,
        "bridge=backward without attention leaves what the forward direction has read unused; use "
        "model.bridge=dense, model.peeky=true, or choose model.attention",
    )
    yield (
        config.bridge is BridgeKind.zero and not attends and not config.peeky,
        "bridge=zero without attention leaves the decoder nothing of the source; use model.bridge=copy, "
        "model.peeky=true, or choose model.attention",
    )
    yield (
        not attends and config.context is not ContextPath.readout,
        f"context={config.context.name} needs attention; choose model.attention, or leave model.context out",
    )
    yield (
        not attends and config.attention_window is not None,
        f"attention_window={config.attention_window} needs attention; choose model.attention, or leave it out",
    )
    yield (
        first_residual and (config.embedding_size != size or encoder_size != size),
        f"residual_from=1 adds embeddings of {config.embedding_size} to states of {encoder_size} in the encoder and of "
        f"{size} in the decoder; make them equal, or use model.residual_from=2",
    )
    yield (
        first_residual and (config.peeky or config.context is not ContextPath.readout),
        "residual_from=1 cannot add the first layer's input, which holds more than the embedding here; use "
        "model.residual_from=2",
    )


@models.declare("gnmt", "gnmt")
@dataclass
class GNMTConfig:
    """Sizes; the defaults are those of the paper."""

    encoder_layers: int = option(8, help="LSTM layers of the encoder; the first reads in both directions")
    decoder_layers: int = option(8, help="LSTM layers of the decoder")
    embedding_size: int = option(1024, help="width of the embeddings")
    hidden_size: int = option(1024, help="width of every layer, and of each direction of the first one")
    residual_from: int = option(3, help="first layer, counted from 1, whose input is added to its output")
    init_range: float = option(0.04, help="every parameter starts uniformly within plus and minus this")
    dropout: float = flag(0.2, help="dropout of every layer's input and before the output layer")

    def __post_init__(self) -> None:
        check_sizes(self, GNMTConfig)
        require_positive("model", init_range=self.init_range)
        if self.decoder_layers < 2:
            raise UsageError(
                f"decoder_layers={self.decoder_layers} leaves no layer that sees the source: the bottom one only asks; use "
                f"2 or more"
            )
        if self.residual_from < 3:
            raise UsageError(
                f"residual_from={self.residual_from} would add inputs of another width: layer 1 reads embeddings, layer 2 "
                f"both directions; use 3 or more"
            )

    def shrink(self) -> GNMTConfig:
        """The same structure in small sizes, for tests."""
        return replace(self, **at_most(self, encoder_layers=4, decoder_layers=4), embedding_size=10, hidden_size=12)


@models.declare("deep_att", "deep_att")
@dataclass
class DeepAttConfig:
    """Sizes; the defaults are those of the paper."""

    encoder_layers: int = option(9, help="layers of each of the encoder's two columns")
    decoder_layers: int = option(7, help="layers of the decoder")
    embedding_size: int = option(256, help="width of the embeddings")
    hidden_size: int = option(512, help="width of every layer")
    dropout: float = flag(0.1, help="dropout of the states between layers")

    def __post_init__(self) -> None:
        check_sizes(self, DeepAttConfig)
        if self.hidden_size % 2:
            raise UsageError(
                f"hidden_size={self.hidden_size} is odd, but the attention reads a quarter of ten times as many numbers; "
                f"use an even model.hidden_size"
            )

    @property
    def memory_size(self) -> int:
        """A quarter of [h, f] of both columns: 1,280 in the paper."""
        return 10 * self.hidden_size // 4

    def shrink(self) -> DeepAttConfig:
        """The same structure in small sizes, for tests."""
        return replace(self, **at_most(self, encoder_layers=3, decoder_layers=3), embedding_size=8, hidden_size=10)


@models.declare("lstm_moe", "lstm_moe")
@dataclass
class LSTMMoEConfig:
    """Sizes; the defaults are the paper's flat mixture."""

    width: int = option(512, help="width of embeddings, outputs of layers, experts and attention")
    cell_size: int = option(2048, help="width of the cells, projected to `width`")
    num_experts: int = option(32, help="experts in each of the two mixtures")
    experts_per_token: int = option(4, help="experts that read each token")
    expert_size: int = option(2048, help="inner width of an expert")
    importance_weight: float = option(0.01, help="weight of the loss that evens out the experts' importance")
    load_weight: float = option(0.01, help="weight of the loss that evens out the experts' load")
    dropout: float = flag(0.4, help="dropout of every layer's output and of the embeddings")

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
        """The same structure in small sizes, for tests."""
        small = at_most(self, num_experts=5, experts_per_token=2)
        return replace(self, **small, width=10, cell_size=14, expert_size=8)
