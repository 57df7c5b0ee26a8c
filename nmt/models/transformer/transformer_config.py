"""The options of the Transformer, and which of them exclude each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from nmt.config.option import FlagKind, option
from nmt.config.sections import require_positive, require_share
from nmt.errors import UsageError
from nmt.layers.sharing import shares_embeddings
from nmt.models import models
from nmt.models.transformer.head_sizes import HeadSizes

if TYPE_CHECKING:
    from nmt.interface import VocabularySizes


class PositionKind(Enum):
    """How a position enters the model."""

    sinusoidal = "sinusoidal"  # added to the embeddings
    learned = "learned"  # added to the embeddings
    relative = "relative"  # inside self-attention: Shaw et al. 2018
    rotary = "rotary"  # inside self-attention: Su et al. 2021
    alibi = "alibi"  # inside self-attention: Press et al. 2022


class NormOrder(Enum):
    """Where the norm of a sublayer stands."""

    post = "post"
    pre = "pre"


class NormKind(Enum):
    """What a norm divides by."""

    layer_norm = "layer_norm"  # the deviation from the mean: Ba et al. 2016
    rms_norm = "rms_norm"  # the root of the mean square: Zhang and Sennrich 2019, equation 4


class ScoreKind(Enum):
    """How a query and a key are compared."""

    scaled_dot = "scaled_dot"
    dot = "dot"  # without the scale
    additive = "additive"  # Bahdanau et al. 2015


class FeedForwardKind(Enum):
    """What stands between two attentions."""

    relu = "relu"
    glu = "glu"  # gated: Shazeer 2020
    geglu = "geglu"
    swiglu = "swiglu"


class DecoderKind(Enum):
    """How the decoder sees what it has written."""

    self_attention = "self_attention"
    average_attention = "average_attention"  # Zhang et al. 2018
    ssru = "ssru"  # Kim et al. 2019


class LayerKind(Enum):
    """Whose parameters a layer has."""

    separate = "separate"  # its own
    universal = "universal"  # those of the only one: Dehghani et al. 2019


@models.declare("transformer")
@dataclass
class TransformerConfig:
    """Every knob of the paper's Table 3, and what came after it; the defaults are the paper's base model."""

    encoder_layers: int = option(6, help="encoder layers", flag="--encoder-layers")
    decoder_layers: int = option(6, help="decoder layers", flag="--decoder-layers")
    d_model: int = option(512, help="width of the residual stream")
    d_ff: int = option(2048, help="inner width of the feed-forward networks")
    num_heads: int = option(8, help="attention heads")
    d_k: int | None = option(None, help="width of a head's queries and keys; null: d_model / num_heads")
    d_v: int | None = option(None, help="width of a head's values; null: d_model / num_heads")
    dropout: float = option(0.1, help="dropout of each sublayer's output and of the embeddings", flag="--dropout")
    attention_dropout: float = option(0.0, help="dropout of the attention weights", flag="--attention-dropout")
    activation_dropout: float = option(
        0.0, help="dropout inside the feed-forward networks", flag="--activation-dropout"
    )
    positions: PositionKind = option(
        PositionKind.sinusoidal, help="sinusoidal or learned (added to the embeddings), relative, rotary or alibi"
    )
    max_positions: int = option(1024, help="longest sentence of learned positions, in pieces")
    share_all_embeddings: bool | None = option(
        None,
        help="one matrix for source, target and output; null: if the vocabulary is joint",
        flag="--share-all-embeddings",
        kind=FlagKind.switch,
    )
    share_decoder_embeddings: bool = option(
        True, help="one matrix for target and output", flag="--share-decoder-input-output-embed"
    )
    norm: NormOrder = option(NormOrder.post, help="norm after (post, the paper) or before (pre) each sublayer")
    attention_bias: bool = option(False, help="biases in the attention projections (the paper has none)")
    norm_kind: NormKind = option(NormKind.layer_norm, help="layer_norm or rms_norm")
    feed_forward: FeedForwardKind = option(FeedForwardKind.relu, help="relu (the paper), glu, geglu or swiglu")
    attention_score: ScoreKind = option(ScoreKind.scaled_dot, help="scaled_dot (the paper), dot or additive")
    relative_distance: int = option(16, help="distance beyond which relative positions are all one")
    encoder_neighbourhood: int | None = option(
        None, help="self-attention of the encoder sees so many positions to each side; null: all"
    )
    decoder_neighbourhood: int | None = option(
        None, help="self-attention of the decoder sees so many positions back; null: all"
    )
    decoder: DecoderKind = option(
        DecoderKind.self_attention, help="self_attention (the paper), average_attention or ssru in the decoder"
    )
    layers: LayerKind = option(
        LayerKind.separate, help="separate layers, or one layer applied again and again (universal)"
    )

    def __post_init__(self) -> None:
        require_positive("model", encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers)
        require_positive("model", d_model=self.d_model, d_ff=self.d_ff, num_heads=self.num_heads)
        require_positive("model", d_k=self.d_k, d_v=self.d_v, max_positions=self.max_positions)
        require_positive("model", relative_distance=self.relative_distance)
        require_positive("model", encoder_neighbourhood=self.encoder_neighbourhood)
        require_positive("model", decoder_neighbourhood=self.decoder_neighbourhood)
        require_share("model", dropout=self.dropout, attention_dropout=self.attention_dropout)
        require_share("model", activation_dropout=self.activation_dropout)
        if self.d_model % self.num_heads and None in (self.d_k, self.d_v):
            raise UsageError(
                f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}; set model.d_k and model.d_v "
                f"to choose head widths freely"
            )
        for conflict in CONFLICTS:
            conflict.check(self)

    def shrink(self) -> TransformerConfig:
        """The same structure in small sizes, for tests."""
        return replace(
            self,
            encoder_layers=min(self.encoder_layers, 2),
            decoder_layers=min(self.decoder_layers, 2),
            d_model=16,
            d_ff=24,
            num_heads=min(self.num_heads, 2),
            d_k=self.d_k and 6,
            d_v=self.d_v and 7,
            max_positions=min(self.max_positions, 64),
            relative_distance=min(self.relative_distance, 3),
            encoder_neighbourhood=self.encoder_neighbourhood and min(self.encoder_neighbourhood, 2),
            decoder_neighbourhood=self.decoder_neighbourhood and min(self.decoder_neighbourhood, 3),
        )

    def head_sizes(self) -> HeadSizes:
        even = self.d_model // self.num_heads
        return HeadSizes(self.d_model, self.num_heads, self.d_k or even, self.d_v or even)

    def shares_all(self, sizes: VocabularySizes) -> bool:
        """Whether source, target and output use one matrix."""
        return shares_embeddings(self.share_all_embeddings, sizes.shared)


@dataclass(frozen=True)
class Choice:
    """Some values of an option, or of what follows from options."""

    said: Callable[[TransformerConfig], str]  # for the message
    made: Callable[[TransformerConfig], bool]


def _is(name: str, *values: Any) -> Choice:
    """An option with one of these values."""

    def said(config: TransformerConfig) -> str:
        value = getattr(config, name)
        return f"model.{name}={value.value if isinstance(value, Enum) else value}"

    return Choice(said, lambda config: getattr(config, name) in values)


def _given(name: str) -> Choice:
    """An option that is not null."""
    return Choice(lambda config: f"model.{name}={getattr(config, name)}", lambda c: getattr(c, name) is not None)


ODD_WIDTH = Choice(lambda config: f"d_model={config.d_model} is odd", lambda config: config.d_model % 2 == 1)
ODD_HEADS = Choice(lambda config: f"d_k={config.head_sizes().d_k} is odd", lambda c: c.head_sizes().d_k % 2 == 1)


@dataclass(frozen=True)
class Conflict:
    """Two choices that cannot be made together, and a sentence about it."""

    first: Choice
    second: Choice
    reason: str

    def check(self, config: TransformerConfig) -> None:
        if self.first.made(config) and self.second.made(config):
            raise UsageError(f"{self.first.said(config)} and {self.second.said(config)}: {self.reason}")


WITHOUT_SELF_ATTENTION = _is("decoder", DecoderKind.average_attention, DecoderKind.ssru)

CONFLICTS = (
    Conflict(
        ODD_WIDTH,
        _is("positions", PositionKind.sinusoidal),
        "sinusoids come in pairs; use an even model.d_model or model.positions=learned",
    ),
    Conflict(
        ODD_WIDTH,
        _is("layers", LayerKind.universal),
        "universal layers are told the step by sinusoids, which come in pairs; use an even model.d_model",
    ),
    Conflict(
        ODD_HEADS,
        _is("positions", PositionKind.rotary),
        "rotary positions turn pairs of numbers; use an even model.d_k",
    ),
    Conflict(
        _is("positions", PositionKind.rotary),
        _is("attention_score", ScoreKind.additive),
        "a rotation is for dot products, which it makes depend on distances; additive scores have none. Use "
        "model.attention_score=scaled_dot, or positions that are added to the embeddings",
    ),
    Conflict(
        _is("positions", PositionKind.relative),
        _is("attention_score", ScoreKind.dot, ScoreKind.additive),
        "relative positions are defined as a part of the scaled dot product; use model.attention_score=scaled_dot, or "
        "positions that are added to the embeddings",
    ),
    Conflict(
        _is("positions", PositionKind.relative, PositionKind.rotary, PositionKind.alibi),
        WITHOUT_SELF_ATTENTION,
        "these positions live in self-attention, and this decoder has none; use model.positions=sinusoidal or learned",
    ),
    Conflict(
        _given("decoder_neighbourhood"),
        WITHOUT_SELF_ATTENTION,
        "a neighbourhood restricts self-attention, and this decoder has none; leave model.decoder_neighbourhood out",
    ),
    Conflict(
        _is("positions", PositionKind.learned),
        _is("layers", LayerKind.universal),
        "universal layers are told position and step by sinusoids that they add up; use model.positions=sinusoidal",
    ),
)
