"""The options of the Transformer with convolutions, and their conflicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import require_positive
from nmt.config.option import flag, option
from nmt.errors import UsageError
from nmt.models import models
from nmt.models.config import check_sizes
from nmt.models.transformer.config import WITHOUT_SELF_ATTENTION, TransformerConfig, other_than


class ConvolutionKind(Enum):
    """The source of the kernels."""

    lightweight = "lightweight"  # learned: Wu et al. 2019, section 3
    dynamic = "dynamic"  # predicted from each position: section 4


@models.declare("lightconv")
@dataclass
class LightConvConfig(TransformerConfig):
    """A Transformer with convolutions instead of self-attention; the defaults are the paper's base sizes."""

    encoder_layers: int = flag(7, help="Number of encoder layers")
    convolution: ConvolutionKind = option(
        ConvolutionKind.lightweight,
        help="Convolution: lightweight (learned kernels) or dynamic (kernels predicted from each position)",
    )
    encoder_kernels: list[int] = option(
        [3, 7, 15, 31], help="Odd kernel widths of the encoder layers; the last one repeats"
    )
    decoder_kernels: list[int] = option(
        [3, 7, 15, 31], help="Kernel widths of the decoder layers; the last one repeats"
    )
    weight_dropout: float = flag(0.0, help="Dropout of the normalized kernel weights")
    gated: bool = option(True, help="Use a gated linear unit before each convolution")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, LightConvConfig)
        for name in ("encoder_kernels", "decoder_kernels"):
            kernels = getattr(self, name)
            if not kernels:
                raise UsageError(f"model.{name} is empty; give at least one width, such as 3")
            require_positive("model", **{name: min(kernels)})
        for kernel in self.encoder_kernels:
            if kernel % 2 == 0:
                raise UsageError(
                    f"model.encoder_kernels has {kernel}, but encoder kernels are centered; use odd widths"
                )
        if self.d_model % self.num_heads:
            raise UsageError(
                f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}, the number of kernels of a "
                f"layer; change one of them"
            )
        for chosen in other_than(WITHOUT_SELF_ATTENTION, self):
            raise UsageError(
                f"{chosen} configures self-attention, which convolutions replace in this model; remove it, or use "
                f"model=transformer"
            )

    def shrink(self) -> LightConvConfig:
        return replace(super().shrink(), encoder_kernels=[3, 5], decoder_kernels=[3, 4])

    def encoder_widths(self) -> list[int]:
        """The kernel width of each encoder layer."""
        return (self.encoder_kernels + self.encoder_kernels[-1:] * self.encoder_layers)[: self.encoder_layers]

    def decoder_widths(self) -> list[int]:
        """The kernel width of each decoder layer."""
        return (self.decoder_kernels + self.decoder_kernels[-1:] * self.decoder_layers)[: self.decoder_layers]
