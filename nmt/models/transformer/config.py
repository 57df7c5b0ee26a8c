"""The options of the Transformer and its variants, and their conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from nmt.config.checks import Refusals, refuse, require_not_negative, require_positive
from nmt.config.option import ShortRepr, flag, option
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models import models
from nmt.models.config import at_most, check_sizes, share_all_option


@dataclass(frozen=True)
class HeadSizes:
    """The sizes of an attention; d_k and d_v need not be D / H."""

    d_model: int
    num_heads: int
    d_k: int
    d_v: int

    @property
    def keys(self) -> int:
        return self.num_heads * self.d_k

    @property
    def values(self) -> int:
        return self.num_heads * self.d_v


class PositionKind(Enum):
    """The kind of positions."""

    sinusoidal = "sinusoidal"  # added to the embeddings
    learned = "learned"  # added to the embeddings
    relative = "relative"  # inside self-attention: Shaw et al. 2018
    rotary = "rotary"  # inside self-attention: Su et al. 2021
    alibi = "alibi"  # inside self-attention: Press et al. 2022
    buckets = "buckets"  # inside self-attention: Raffel et al. 2020 (T5)

    @property
    def is_inside_attention(self) -> bool:
        """Whether self-attention applies the positions, instead of adding them to the embeddings."""
        return self not in (PositionKind.sinusoidal, PositionKind.learned)


class NormOrder(Enum):
    """The place of a sublayer's norm: after the residual connection (post) or before the sublayer (pre)."""

    post = "post"
    pre = "pre"


class NormKind(Enum):
    """The divisor of a norm."""

    layer_norm = "layer_norm"  # the deviation from the mean: Ba et al. 2016
    rms_norm = "rms_norm"  # the root of the mean square: Zhang and Sennrich 2019, equation 4


class ScoreKind(Enum):
    """The score of a query and a key."""

    scaled_dot = "scaled_dot"
    dot = "dot"  # without the scale
    additive = "additive"  # Bahdanau et al. 2015


class FeedForwardKind(Enum):
    """The kind of feed-forward network."""

    relu = "relu"
    gelu = "gelu"  # Hendrycks and Gimpel 2016
    swish = "swish"  # Ramachandran et al. 2017
    glu = "glu"  # gated: Shazeer 2020
    geglu = "geglu"
    swiglu = "swiglu"
    gelu_tanh = "gelu_tanh"  # gelu, approximated by tanh
    geglu_tanh = "geglu_tanh"  # T5 1.1


class StartSymbol(Enum):
    """The first input token of the decoder."""

    bos = "bos"
    eos = "eos"  # fairseq
    pad = "pad"  # Marian


START_IDS = {StartSymbol.bos: BOS, StartSymbol.eos: EOS, StartSymbol.pad: PAD}


class DecoderKind(Enum):
    """The decoder's first sublayer."""

    self_attention = "self_attention"
    average_attention = "average_attention"  # Zhang et al. 2018
    ssru = "ssru"  # Kim et al. 2019


class LayerKind(Enum):
    """Sharing of parameters between layers."""

    separate = "separate"  # no sharing
    universal = "universal"  # one layer, applied repeatedly: Dehghani et al. 2019


Self = TypeVar("Self", bound="TransformerConfig")


@models.declare("transformer", "transformer")
@dataclass
class TransformerConfig(ShortRepr):
    """The options of the paper's Table 3 and of later variants; the defaults are the paper's base model."""

    encoder_layers: int = flag(6, help="Number of encoder layers")
    decoder_layers: int = flag(6, help="Number of decoder layers")
    d_model: int = option(512, help="Width of the residual stream")
    d_ff: int = option(2048, help="Inner width of the feed-forward networks")
    num_heads: int = option(8, help="Number of attention heads")
    d_k: int | None = option(None, help="Width of a head's queries and keys; null: d_model / num_heads")
    d_v: int | None = option(None, help="Width of a head's values; null: d_model / num_heads")
    dropout: float = flag(0.1, help="Dropout of sublayer outputs and embeddings")
    attention_dropout: float = flag(0.0, help="Dropout of the attention weights")
    activation_dropout: float = flag(0.0, help="Dropout inside the feed-forward networks")
    layer_dropout: float = flag(0.0, help="Probability of skipping a layer in training (LayerDrop)")
    positions: PositionKind = option(
        PositionKind.sinusoidal,
        help="Positions: sinusoidal or learned (both added), relative, rotary, alibi or buckets (T5)",
    )
    max_positions: int = option(1024, help="Maximum sentence length in tokens, for learned positions")
    sinusoid_layout: SinusoidLayout = option(
        SinusoidLayout.interleaved,
        help="Order of sines and cosines: interleaved (the paper) or halves (fairseq, Marian)",
    )
    sinusoid_wavelengths: Wavelengths = option(
        Wavelengths.paper, help="Wavelengths of the sinusoids: paper or tensor2tensor (also fairseq)"
    )
    sinusoid_base: float = option(10000.0, help="Longest wavelength of the sinusoids, in multiples of 2 pi")
    position_offset: int = option(0, help="Index of a sentence's first position in the sinusoids (fairseq: 2)")
    share_all_embeddings: bool | None = share_all_option(None)
    share_decoder_embeddings: bool = option(
        True, help="Share one matrix between target and output", flag="--share-decoder-input-output-embed"
    )
    share_input_embeddings: bool = option(
        False, help="Share one matrix between source and target (T5 1.1); needs share_all_embeddings=false"
    )
    embedding_scale: bool = option(True, help="Multiply embeddings by sqrt(d_model), as in the paper")
    embedding_norm: bool = option(
        False, help="Normalize the sum of embedding and position, as mBART does (the paper does not)"
    )
    output_bias: bool = option(False, help="Add a bias for each token in the output layer (the paper has none)")
    start_symbol: StartSymbol = option(
        StartSymbol.bos, help="First input token of the decoder: bos, eos (as fairseq) or pad (as Marian)"
    )
    norm: NormOrder = option(NormOrder.post, help="Norm after (post, the paper) or before (pre) each sublayer")
    encoder_norm: NormOrder | None = option(None, help="Norm order of the encoder; null: model.norm")
    decoder_norm: NormOrder | None = option(None, help="Norm order of the decoder; null: model.norm")
    attention_bias: bool = option(False, help="Add biases to the attention projections (the paper has none)")
    norm_kind: NormKind = option(NormKind.layer_norm, help="Kind of norm: layer_norm or rms_norm")
    norm_epsilon: float | None = option(
        None, help="Constant added to the variance in norms; null: 1e-5 for layer_norm, 1e-6 for rms_norm"
    )
    feed_forward: FeedForwardKind = option(
        FeedForwardKind.relu,
        help="Feed-forward networks: relu (the paper), gelu, swish, glu, geglu, swiglu, gelu_tanh or geglu_tanh (T5 1.1)",
    )
    attention_score: ScoreKind = option(ScoreKind.scaled_dot, help="Attention: scaled_dot (the paper), dot or additive")
    relative_distance: int = option(16, help="Maximum relative position; larger distances are clipped to it")
    position_buckets: int = option(32, help="Number of buckets of distances, for model.positions=buckets")
    bucket_distance: int = option(128, help="Distance in tokens from which all keys share the last bucket")
    encoder_neighborhood: int | None = option(
        None, help="Number of positions on each side that the encoder's self-attention covers; null: all"
    )
    decoder_neighborhood: int | None = option(
        None, help="Number of earlier positions that the decoder's self-attention covers; null: all"
    )
    decoder: DecoderKind = option(
        DecoderKind.self_attention,
        help="First sublayer of the decoder: self_attention (the paper), average_attention or ssru",
    )
    layers: LayerKind = option(LayerKind.separate, help="Layers: separate, or universal (one layer applied repeatedly)")

    def __post_init__(self) -> None:
        check_sizes(self, TransformerConfig, except_for=["position_offset"])
        require_positive("model", sinusoid_base=self.sinusoid_base, norm_epsilon=self.norm_epsilon)
        require_not_negative("model", position_offset=self.position_offset)
        refuse(*self.conflicts())

    def conflicts(self) -> Refusals:
        """Yield conflicts between options."""
        odd, d_k = self.d_model % 2, self.head_sizes().d_k
        positions, decoder = f"model.positions={self.positions.name}", f"model.decoder={self.decoder.name}"
        score = f"model.attention_score={self.attention_score.name}"
        sinusoidal, learned = self.positions is PositionKind.sinusoidal, self.positions is PositionKind.learned
        rotary, relative = self.positions is PositionKind.rotary, self.positions is PositionKind.relative
        buckets = self.positions is PositionKind.buckets
        universal, attends = self.layers is LayerKind.universal, self.decoder is DecoderKind.self_attention
        yield (
            self.d_model % self.num_heads and None in (self.d_k, self.d_v),
            f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}; set model.d_k and model.d_v to choose "
            f"head widths freely",
        )
        yield (
            odd and sinusoidal,
            f"d_model={self.d_model} is odd and {positions}: sinusoids come in pairs; use an even model.d_model or "
            f"model.positions=learned",
        )
        yield (
            odd and universal,
            f"d_model={self.d_model} is odd and model.layers=universal: sinusoids encode the step of universal "
            f"layers, and come in pairs; use an even model.d_model",
        )
        yield (
            rotary and d_k % 2,
            f"d_k={d_k} is odd and {positions}: rotary positions rotate pairs of numbers; use an even model.d_k",
        )
        yield (
            rotary and self.attention_score is ScoreKind.additive,
            f"{positions} and {score}: rotary positions need dot products, but additive scores have none; "
            f"use model.attention_score=scaled_dot, or positions that are added to the embeddings",
        )
        yield (
            relative and self.attention_score is not ScoreKind.scaled_dot,
            f"{positions} and {score}: relative positions are defined only for the scaled dot product; use "
            f"model.attention_score=scaled_dot, or positions that are added to the embeddings",
        )
        yield (
            not attends and self.positions.is_inside_attention,
            f"{positions} and {decoder}: self-attention applies these positions, but this decoder has none; use "
            f"model.positions=sinusoidal or learned",
        )
        yield (
            not attends and self.decoder_neighborhood is not None,
            f"model.decoder_neighborhood={self.decoder_neighborhood} and {decoder}: the option restricts "
            f"self-attention, but this decoder has none; omit model.decoder_neighborhood",
        )
        local = next(other_than({"encoder_neighborhood": (None,), "decoder_neighborhood": (None,)}, self), None)
        yield (
            buckets and local,
            f"{positions} and {local}: attention to neighborhoods does not support buckets; use model.positions=alibi or "
            f"relative, or leave the neighborhood out",
        )
        yield (
            buckets and not 4 <= self.position_buckets < 2 * self.bucket_distance,
            f"{positions}, position_buckets={self.position_buckets} and bucket_distance={self.bucket_distance}: the number "
            f"of buckets must be at least 4 and less than twice the distance; set model.position_buckets",
        )
        changed = next(other_than(_OF_SINUSOIDS, self), None)
        yield (
            changed and not sinusoidal,
            f"{positions} and {changed}: the option changes sinusoidal positions; use model.positions=sinusoidal, or omit "
            f"it",
        )
        yield (
            universal and learned,
            f"{positions} and model.layers=universal: universal layers add sinusoids of the position and of the step; "
            f"use model.positions=sinusoidal",
        )

    def sinusoids(self) -> Sinusoids:
        """Return the formula of sinusoidal positions."""
        return Sinusoids(
            self.d_model, self.sinusoid_layout, self.sinusoid_wavelengths, self.sinusoid_base, self.position_offset
        )

    def epsilon(self) -> float:
        """Return the constant that norms add to the variance; the paper of rms_norm adds none."""
        usual = 1e-5 if self.norm_kind is NormKind.layer_norm else 1e-6
        return usual if self.norm_epsilon is None else self.norm_epsilon

    def norm_orders(self) -> tuple[NormOrder, NormOrder]:
        """Return the norm orders of encoder and decoder."""
        return self.encoder_norm or self.norm, self.decoder_norm or self.norm

    def shrink(self: Self) -> Self:
        small = at_most(self, encoder_layers=2, decoder_layers=2, num_heads=2)
        if self.positions is PositionKind.learned:
            small |= at_most(self, max_positions=64)
        if self.positions is PositionKind.relative:
            small |= at_most(self, relative_distance=3)
        if self.positions is PositionKind.buckets:
            small |= at_most(self, position_buckets=8, bucket_distance=6)
        small |= at_most(self, encoder_neighborhood=2, decoder_neighborhood=3)
        return replace(self, **small, d_model=16, d_ff=24, d_k=self.d_k and 6, d_v=self.d_v and 7)

    def head_sizes(self) -> HeadSizes:
        even = self.d_model // self.num_heads
        return HeadSizes(self.d_model, self.num_heads, self.d_k or even, self.d_v or even)


def other_than(plain: Mapping[str, tuple[object, ...]], config: object) -> Iterator[str]:
    """Yield the options whose values are not among the ``plain`` ones, such as "model.decoder=ssru"."""
    for name, values in plain.items():
        value = getattr(config, name)
        if value not in values:
            yield f"model.{name}={getattr(value, 'value', value)}"


def beyond(values: Mapping[str, tuple[object, ...]], config: object) -> str | None:
    """Return the first feature that a Transformer whose options have these ``values`` lacks; None: it lacks none."""
    return next(other_than(values, config), None) if type(config) is TransformerConfig else "its architecture"


# Options of sinusoidal positions, with their values in the paper.
_OF_SINUSOIDS = {
    "sinusoid_layout": (SinusoidLayout.interleaved,),
    "sinusoid_wavelengths": (Wavelengths.paper,),
    "sinusoid_base": (10000.0,),
    "position_offset": (0,),
}

# Options of self-attention, with the values that need none.
WITHOUT_SELF_ATTENTION = {
    "positions": (PositionKind.sinusoidal, PositionKind.learned),
    "decoder": (DecoderKind.self_attention,),
    "layers": (LayerKind.separate,),
    "encoder_neighborhood": (None,),
    "decoder_neighborhood": (None,),
}


@models.declare("transformer_moe", "transformer_moe")
@dataclass
class TransformerMoEConfig(TransformerConfig):
    """A Transformer with experts; the defaults are the base model with eight of them."""

    num_experts: int = option(8, help="Number of experts in each mixture")
    experts_per_token: int = option(2, help="Number of experts that read each token")
    expert_size: int | None = option(None, help="Inner width of an expert; null: d_ff")
    experts_every: int = option(
        2, help="Distance between layers with experts, counted from the top; 1: all layers, 2: every second layer"
    )
    importance_weight: float = option(0.01, help="Weight of the loss that balances the experts' importance")
    load_weight: float = option(0.01, help="Weight of the loss that balances the experts' load")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, TransformerMoEConfig)
        require_not_negative("model", importance_weight=self.importance_weight, load_weight=self.load_weight)

    def conflicts(self) -> Refusals:
        """Yield conflicts between options."""
        yield from super().conflicts()
        yield (
            self.experts_per_token > self.num_experts,
            f"experts_per_token={self.experts_per_token} is more than num_experts={self.num_experts}; lower it",
        )
        yield (
            self.layers is LayerKind.universal,
            "model.layers=universal has one layer, but experts need several; use model.layers=separate",
        )

    def shrink(self) -> TransformerMoEConfig:
        small = at_most(self, num_experts=5, experts_per_token=2, experts_every=2)
        return replace(super().shrink(), **small, expert_size=self.expert_size and 8)
