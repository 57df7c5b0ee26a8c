"""Builders of the Transformer's parts: a table for each option, from its values to modules.

To add a variant, add a value to its enum in config.py, a line to a table here, and a line to the table of conflicts for each
option that it excludes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.data.vocabulary import BOS
from nmt.layers.embeddings import InputLayer, LearnedPositions, NoPositions, Positions, SinusoidalPositions
from nmt.models.transformer.attention import (
    Attend,
    CausalSelfAttention,
    CrossAttention,
    DotProduct,
    ScaledDotProduct,
    SelfAttention,
)
from nmt.models.transformer.attention_kinds import Additive, ALiBi, BucketBiases, NoBiases, RelativeDotProduct, Rotary
from nmt.models.transformer.autoregression import Autoregression
from nmt.models.transformer.config import (
    START_IDS,
    DecoderKind,
    FeedForwardKind,
    LayerKind,
    NormKind,
    NormOrder,
    PositionKind,
    ScoreKind,
    TransformerConfig,
)
from nmt.models.transformer.decoders_without_attention import SSRU, AverageAttention
from nmt.models.transformer.layers import (
    Coordinates,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    LayerParts,
    PostNorm,
    PreNorm,
    Residual,
    SourceLayer,
    TargetLayer,
    UniversalDecoderLayer,
    UniversalEncoderLayer,
)
from nmt.models.transformer.local_attention import LocalCausalSelfAttention, LocalSelfAttention

Config = TransformerConfig
Made = TypeVar("Made")


# Feed-forward networks: any module that keeps the shape [..., D].

_gelu_tanh = partial(F.gelu, approximate="tanh")

FEED_FORWARDS: dict[FeedForwardKind, Callable[[Config], nn.Module]] = {
    FeedForwardKind.relu: lambda c: FeedForward(c.d_model, c.d_ff, c.activation_dropout),
    FeedForwardKind.gelu: lambda c: FeedForward(c.d_model, c.d_ff, c.activation_dropout, F.gelu),
    FeedForwardKind.swish: lambda c: FeedForward(c.d_model, c.d_ff, c.activation_dropout, F.silu),
    FeedForwardKind.glu: lambda c: GatedFeedForward(torch.sigmoid, c.d_model, c.d_ff, c.activation_dropout),
    FeedForwardKind.geglu: lambda c: GatedFeedForward(F.gelu, c.d_model, c.d_ff, c.activation_dropout),
    FeedForwardKind.swiglu: lambda c: GatedFeedForward(F.silu, c.d_model, c.d_ff, c.activation_dropout),
    FeedForwardKind.gelu_tanh: lambda c: FeedForward(c.d_model, c.d_ff, c.activation_dropout, _gelu_tanh),
    FeedForwardKind.geglu_tanh: lambda c: GatedFeedForward(_gelu_tanh, c.d_model, c.d_ff, c.activation_dropout),
}


# Norms and residual connections.

NORMS: dict[NormKind, Callable[..., nn.Module]] = {NormKind.layer_norm: nn.LayerNorm, NormKind.rms_norm: nn.RMSNorm}

RESIDUALS: dict[NormOrder, type[Residual]] = {NormOrder.post: PostNorm, NormOrder.pre: PreNorm}


def embedding_norm(config: Config) -> nn.Module | None:
    """Build the norm of a stack's input; None: it has none."""
    return _norm(config) if config.embedding_norm else None


def final_norms(config: Config) -> list[nn.Module]:
    """Build the modules after the last layer of the encoder and of the decoder."""
    return [_norm(config) if order is NormOrder.pre else nn.Identity() for order in config.norm_orders()]


def _norm(config: Config) -> nn.Module:
    return NORMS[config.norm_kind](config.d_model, eps=config.epsilon())


def _residual(config: Config, order: NormOrder) -> Residual:
    return RESIDUALS[order](_norm(config), config.dropout)


# The input of the decoder.


class TargetInput(InputLayer):
    """The decoder's input layer; it replaces BOS by the start symbol that the model was trained with."""

    def __init__(self, embedding: nn.Module, positions: Positions, config: Config) -> None:
        super().__init__(embedding, positions, config.dropout, embedding_norm(config))
        self.start = START_IDS[config.start_symbol]

    def at(self, tokens: Tensor, positions: Tensor, bound: int) -> Tensor:
        read = tokens if self.start == BOS else tokens.masked_fill(tokens == BOS, self.start)
        return super().at(read, positions, bound)


# Attention inside the heads.

SCORES: dict[ScoreKind, Callable[[Config], Attend]] = {
    ScoreKind.scaled_dot: lambda c: ScaledDotProduct(c.attention_dropout),
    ScoreKind.dot: lambda c: DotProduct(c.attention_dropout),
    ScoreKind.additive: lambda c: Additive(c.head_sizes(), c.attention_dropout),
}


def scores(config: Config) -> Attend:
    return SCORES[config.attention_score](config)


# Positions: vectors added to the embeddings, scores that depend on distances, or a rotation.


@dataclass(frozen=True)
class PositionParts:
    """Builders of a kind of positions."""

    vectors: Callable[[Config], Positions]
    scores: Callable[[Config, bool], Attend] = lambda config, ahead: scores(config)
    rotation: Callable[[Config], nn.Module | None] = lambda config: None
    biases: Callable[[Config, bool], nn.Module] = lambda config, ahead: NoBiases()  # of the mask of a stack


def _relative(config: Config, ahead: bool) -> RelativeDotProduct:
    reach = config.relative_distance
    return RelativeDotProduct(config.head_sizes(), config.attention_dropout, reach, reach if ahead else 0)


def _bucketed(config: Config, ahead: bool) -> Attend:
    attend = scores(config)
    attend.applies_positions = True  # the mask holds their biases
    return attend


POSITIONS: dict[PositionKind, PositionParts] = {
    PositionKind.sinusoidal: PositionParts(lambda c: SinusoidalPositions(c.d_model, c.sinusoids())),
    PositionKind.learned: PositionParts(lambda c: LearnedPositions(c.d_model, c.max_positions)),
    PositionKind.relative: PositionParts(lambda c: NoPositions(), _relative),
    PositionKind.rotary: PositionParts(lambda c: NoPositions(), rotation=lambda c: Rotary(c.head_sizes().d_k)),
    PositionKind.alibi: PositionParts(lambda c: NoPositions(), lambda c, ahead: ALiBi(scores(c), c.num_heads)),
    PositionKind.buckets: PositionParts(lambda c: NoPositions(), _bucketed, biases=BucketBiases),
}


def mask_biases(config: Config) -> list[nn.Module]:
    """Build the biases of positions that the masks of the encoder and of the decoder hold."""
    return [POSITIONS[config.positions].biases(config, ahead) for ahead in (True, False)]


# Self-attention of the encoder and its variants in the decoder, and cross-attention.


def _self_attention(
    config: Config, whole: Callable[..., Made], local: Callable[..., Made], reach: int | None, ahead: bool
) -> Made:
    kind = whole if reach is None else partial(local, reach)
    positions = POSITIONS[config.positions]
    scores, rotation = positions.scores(config, ahead), positions.rotation(config)
    return kind(config.head_sizes(), config.attention_bias, scores, rotation)


TARGET_ATTENTIONS: dict[DecoderKind, Callable[[Config], Autoregression]] = {
    DecoderKind.self_attention: lambda c: _self_attention(
        c, CausalSelfAttention, LocalCausalSelfAttention, c.decoder_neighborhood, False
    ),
    DecoderKind.average_attention: lambda c: AverageAttention(c.d_model, c.d_ff, c.activation_dropout),
    DecoderKind.ssru: lambda c: SSRU(c.d_model),
}


def layer_parts(config: Config) -> LayerParts:
    """Return the builders of the parts that the options select; a variant changes some with ``dataclasses.replace``."""
    source_order, target_order = config.norm_orders()
    return LayerParts(
        source_attention=lambda: _self_attention(
            config, SelfAttention, LocalSelfAttention, config.encoder_neighborhood, True
        ),
        target_attention=lambda: TARGET_ATTENTIONS[config.decoder](config),
        cross_attention=lambda: CrossAttention(config.head_sizes(), config.attention_bias, scores(config)),
        feed_forward=lambda: FEED_FORWARDS[config.feed_forward](config),
        source_residual=lambda: _residual(config, source_order),
        target_residual=lambda: _residual(config, target_order),
    )


# Stacks of layers, and the positions added to their input.


def position_vectors(config: Config) -> Positions:
    return POSITIONS[config.positions].vectors(config)


@dataclass(frozen=True)
class Stacks:
    """Builders of the input positions and of the layers of both stacks."""

    input_positions: Callable[[Config], Positions]
    encoder: Callable[[Config], Sequence[SourceLayer]]
    decoder: Callable[[Config], Sequence[TargetLayer]]

    @classmethod
    def of(cls, parts: LayerParts) -> Stacks:
        """Return stacks whose layers all have these parts, with the usual positions."""
        return cls(
            position_vectors,
            encoder=lambda c: [EncoderLayer(parts) for _ in range(c.encoder_layers)],
            decoder=lambda c: [DecoderLayer(parts) for _ in range(c.decoder_layers)],
        )


def _coordinates(config: Config, steps: int) -> Coordinates:
    return Coordinates(position_vectors(config), steps, config.d_model)


STACKS: dict[LayerKind, Callable[[Config], Stacks]] = {
    LayerKind.separate: lambda config: Stacks.of(layer_parts(config)),
    LayerKind.universal: lambda config: Stacks(
        lambda c: NoPositions(),  # the layer adds positions at each step
        encoder=lambda c: [UniversalEncoderLayer(EncoderLayer(layer_parts(c)), _coordinates(c, c.encoder_layers))],
        decoder=lambda c: [UniversalDecoderLayer(DecoderLayer(layer_parts(c)), _coordinates(c, c.decoder_layers))],
    ),
}
