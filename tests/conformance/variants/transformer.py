"""What no preset of the Transformer uses."""

from __future__ import annotations

from nmt.models.transformer.config import (
    DecoderKind,
    FeedForwardKind,
    LayerKind,
    NormKind,
    NormOrder,
    PositionKind,
    ScoreKind,
    TransformerConfig,
)
from nmt.models.transformer.lightconv_config import LightConvConfig
from nmt.testing.conformance import Subject

VARIANTS = (
    Subject("transformer_pre_norm", TransformerConfig(norm=NormOrder.pre).shrink()),
    Subject("transformer_learned_positions", TransformerConfig(positions=PositionKind.learned).shrink()),
    Subject("transformer_free_heads", TransformerConfig(d_k=8, d_v=64, attention_bias=True).shrink()),
    Subject(
        "transformer_nothing_shared",
        TransformerConfig(share_all_embeddings=False, share_decoder_embeddings=False).shrink(),
    ),
    Subject("transformer_shared_output", TransformerConfig(share_all_embeddings=False).shrink()),
    Subject(
        "transformer_shared_inputs",
        TransformerConfig(
            share_all_embeddings=False, share_decoder_embeddings=False, share_input_embeddings=True
        ).shrink(),
    ),
    Subject(
        "transformer_every_dropout",
        TransformerConfig(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1).shrink(),
    ),
    Subject("transformer_additive", TransformerConfig(attention_score=ScoreKind.additive).shrink()),
    Subject(
        "transformer_unscaled_glu_rms",
        TransformerConfig(
            attention_score=ScoreKind.dot,
            feed_forward=FeedForwardKind.glu,
            norm_kind=NormKind.rms_norm,
            norm=NormOrder.pre,
        ).shrink(),
    ),
    Subject("transformer_geglu", TransformerConfig(feed_forward=FeedForwardKind.geglu).shrink()),
    Subject(
        "transformer_local_relative",
        TransformerConfig(
            positions=PositionKind.relative, encoder_neighborhood=4, decoder_neighborhood=4, attention_dropout=0.1
        ).shrink(),
    ),
    Subject(
        "transformer_local_rotary",
        TransformerConfig(positions=PositionKind.rotary, encoder_neighborhood=4, decoder_neighborhood=4).shrink(),
    ),
    Subject(
        "transformer_local_alibi",
        TransformerConfig(
            positions=PositionKind.alibi,
            attention_score=ScoreKind.additive,
            encoder_neighborhood=4,
            decoder_neighborhood=4,
            d_k=8,
            d_v=64,
        ).shrink(),
    ),
    Subject(
        "transformer_as_mbart",
        TransformerConfig(
            positions=PositionKind.learned,
            embedding_norm=True,
            norm=NormOrder.pre,
            feed_forward=FeedForwardKind.gelu,
            attention_bias=True,
            output_bias=True,
        ).shrink(),
    ),
    Subject(
        "transformer_as_t5",
        TransformerConfig(
            positions=PositionKind.buckets,
            norm=NormOrder.pre,
            norm_kind=NormKind.rms_norm,
            feed_forward=FeedForwardKind.geglu_tanh,
            attention_score=ScoreKind.dot,
            attention_dropout=0.1,
            d_k=8,
            d_v=8,
        ).shrink(),
    ),
    Subject(
        "transformer_universal_buckets",
        TransformerConfig(
            layers=LayerKind.universal, positions=PositionKind.buckets, feed_forward=FeedForwardKind.gelu_tanh
        ).shrink(),
    ),
    Subject(
        "lightconv_pre_norm",
        LightConvConfig(norm=NormOrder.pre, gated=False, weight_dropout=0.2, positions=PositionKind.learned).shrink(),
    ),
    Subject(
        "transformer_universal_rotary",
        TransformerConfig(
            layers=LayerKind.universal, positions=PositionKind.rotary, decoder_neighborhood=4, norm=NormOrder.pre
        ).shrink(),
    ),
    Subject(
        "transformer_universal_ssru",
        TransformerConfig(layers=LayerKind.universal, decoder=DecoderKind.ssru).shrink(),
    ),
)
