"""What no preset of the Transformer uses."""

from __future__ import annotations

from nmt.models.transformer import NormOrder, PositionKind, TransformerConfig
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
        "transformer_every_dropout",
        TransformerConfig(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1).shrink(),
    ),
)
