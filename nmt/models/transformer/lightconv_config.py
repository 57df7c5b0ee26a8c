"""The options of the Transformer with convolutions in place of self-attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.option import option
from nmt.config.sections import require_positive, require_share
from nmt.errors import UsageError
from nmt.models import models
from nmt.models.transformer.transformer_config import DecoderKind, LayerKind, PositionKind, TransformerConfig


class ConvolutionKind(Enum):
    """Where the kernels come from."""

    lightweight = "lightweight"  # learned: Wu et al. 2019, section 3
    dynamic = "dynamic"  # predicted from each position: section 4


# Options of self-attention, and the values that do without it.
WITHOUT_SELF_ATTENTION = {
    "positions": (PositionKind.sinusoidal, PositionKind.learned),
    "decoder": (DecoderKind.self_attention,),
    "layers": (LayerKind.separate,),
    "encoder_neighbourhood": (None,),
    "decoder_neighbourhood": (None,),
}


@models.declare("lightconv")
@dataclass
class LightConvConfig(TransformerConfig):
    """What a Transformer has besides self-attention, and convolutions; the defaults are the paper's base sizes."""

    encoder_layers: int = option(7, help="encoder layers", flag="--encoder-layers")
    convolution: ConvolutionKind = option(
        ConvolutionKind.lightweight, help="lightweight (learned kernels) or dynamic (predicted from each position)"
    )
    encoder_kernels: list[int] = option(
        [3, 7, 15, 31], help="kernel widths of the encoder's layers, odd; the last one repeats"
    )
    decoder_kernels: list[int] = option(
        [3, 7, 15, 31], help="kernel widths of the decoder's layers; the last one repeats"
    )
    weight_dropout: float = option(0.0, help="dropout of the weights of normalised kernels", flag="--weight-dropout")
    gated: bool = option(True, help="a gated linear unit before each convolution")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share("model", weight_dropout=self.weight_dropout)
        for name in ("encoder_kernels", "decoder_kernels"):
            kernels = getattr(self, name)
            if not kernels:
                raise UsageError(f"model.{name} is empty; give at least one width, such as 3")
            require_positive("model", **{name: min(kernels)})
        for kernel in self.encoder_kernels:
            if kernel % 2 == 0:
                raise UsageError(
                    f"model.encoder_kernels has {kernel}, but the encoder looks as far back as ahead; use odd widths"
                )
        if self.d_model % self.num_heads:
            raise UsageError(
                f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}, but as many kernels share the "
                f"channels; use other numbers"
            )
        for name, possible in WITHOUT_SELF_ATTENTION.items():
            value = getattr(self, name)
            if value not in possible:
                raise UsageError(
                    f"model.{name}={getattr(value, 'value', value)} is for self-attention, and here are convolutions of a "
                    f"width for each layer; leave it out, or use model=transformer"
                )

    def shrink(self) -> LightConvConfig:
        """The same structure in small sizes, for tests."""
        small = super().shrink()
        assert isinstance(small, LightConvConfig)
        return replace(small, encoder_kernels=[3, 5], decoder_kernels=[3, 4])

    def encoder_widths(self) -> list[int]:
        """The kernel width of each encoder layer."""
        return _by_layer(self.encoder_kernels, self.encoder_layers)

    def decoder_widths(self) -> list[int]:
        """The kernel width of each decoder layer."""
        return _by_layer(self.decoder_kernels, self.decoder_layers)


def _by_layer(kernels: list[int], layers: int) -> list[int]:
    return (kernels + kernels[-1:] * layers)[:layers]
