"""What no preset of the convolutional models uses."""

from __future__ import annotations

from nmt.models.convolutional.config import ByteNetConfig, CombinationKind, ConvS2SConfig
from nmt.testing.conformance import Subject

VARIANTS = (
    # The shortest sentences are shorter than the widest kernel.
    Subject(
        "conv_s2s_uneven",
        ConvS2SConfig(encoder_convolutions=["1x8x9", "1x12x1"], decoder_convolutions=["1x12x4", "1x8x1"]).shrink(),
    ),
    Subject("conv_s2s_few_positions", ConvS2SConfig(max_positions=7).shrink()),
    Subject("bytenet_concatenated", ByteNetConfig(combination=CombinationKind.concat, encoder_kernel=5).shrink()),
    # Without unfolding, most targets grow beyond the source.
    Subject("bytenet_short", ByteNetConfig(unfold_a=0.5, decoder_kernel=2, dilations=[1, 3], dropout=0.1).shrink()),
    Subject("bytenet_long", ByteNetConfig(unfold_a=1.5, unfold_b=4.0, share_all_embeddings=True).shrink()),
)
