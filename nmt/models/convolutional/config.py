"""The options of convolutional models: ByteNet, ConvS2S."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import require_at_most, require_not_negative, require_positive
from nmt.config.option import ShortRepr, flag, option
from nmt.errors import UsageError
from nmt.models import models
from nmt.models.config import LARGEST_FACTOR, MOST_PARTS, check_sizes, share_all_option


class CombinationKind(Enum):
    """The combination of target embedding and encoder output."""

    add = "add"
    concat = "concat"


@models.declare("bytenet", "bytenet")
@dataclass
class ByteNetConfig(ShortRepr):
    """Sizes; the defaults are the paper's model for translation (section 6)."""

    hidden_size: int = option(800, help="Hidden width d of a residual block; the residual stream has width 2 d")
    encoder_sets: int = option(6, help="Number of encoder sets, each with one residual block per dilation")
    decoder_sets: int = option(6, help="Number of decoder sets, each with one residual block per dilation")
    dilations: list[int] = option([1, 2, 4, 8, 16], help="Dilation of each residual block of a set")
    encoder_kernel: int = option(3, help="Kernel width of the encoder's convolutions")
    decoder_kernel: int = option(3, help="Kernel width of the decoder's masked convolutions")
    unfold_a: float = option(1.2, help="Factor in the encoder output length: unfold_a * source length + unfold_b")
    unfold_b: float = option(0.0, help="Constant in the encoder output length, in tokens; see unfold_a")
    combination: CombinationKind = option(
        CombinationKind.add, help="Combination of encoder output and target embedding: add or concat"
    )
    dropout: float = flag(0.0, help="Dropout of the embeddings and of each block's output")
    share_all_embeddings: bool | None = share_all_option(False)

    def __post_init__(self) -> None:
        check_sizes(self, ByteNetConfig)
        require_positive("model", unfold_a=self.unfold_a)
        require_not_negative("model", unfold_b=self.unfold_b)
        require_at_most("model", LARGEST_FACTOR, unfold_a=self.unfold_a)
        require_at_most("model", MOST_PARTS, unfold_b=self.unfold_b)
        if not self.dilations or min(self.dilations) < 1:
            raise UsageError(
                f"model.dilations={self.dilations} must be whole numbers of at least 1, such as [1,2,4,8,16]"
            )
        if self.encoder_kernel % 2 == 0:
            raise UsageError(
                f"model.encoder_kernel={self.encoder_kernel} is even, but the encoder's convolutions are centered; "
                f"use an odd width"
            )

    def shrink(self) -> ByteNetConfig:
        return replace(self, hidden_size=8, encoder_sets=1, decoder_sets=1)


@dataclass(frozen=True)
class Group:
    """Consecutive layers of equal sizes."""

    count: int
    channels: int
    kernel: int

    @staticmethod
    def parse(text: str, where: str) -> Group:
        """Parse ``9x512x3``: nine layers of 512 channels with kernel width 3."""
        if not re.fullmatch(r"[1-9]\d{0,6}x[1-9]\d{0,6}x[1-9]\d{0,6}", text):
            raise UsageError(
                f"{where} has {text!r}; write layers x channels x kernel width, such as 9x512x3 for nine layers of 512 "
                f"channels with kernel width 3"
            )
        group = Group(*map(int, text.split("x")))
        if group.count > MOST_PARTS:
            raise UsageError(f"{where} has {text!r}, more than {MOST_PARTS} layers; lower the first number")
        return group

    def __str__(self) -> str:
        return f"{self.count}x{self.channels}x{self.kernel}"


@models.declare("conv_s2s", "conv_s2s")
@dataclass
class ConvS2SConfig(ShortRepr):
    """Sizes; the defaults are the paper's model for English-Romanian (section 5.1)."""

    embedding_size: int = option(512, help="Width of the embeddings and of the attention's queries and keys")
    encoder_convolutions: list[str] = option(
        ["20x512x3"], help="Groups of encoder layers, as layers x channels x kernel width"
    )
    decoder_convolutions: list[str] = option(
        ["20x512x3"], help="Groups of decoder layers, as layers x channels x kernel width"
    )
    output_size: int = option(512, help="Width before the output layer")
    dropout: float = flag(0.2, help="Dropout of embeddings, of each convolution's input and before the output layer")
    max_positions: int = option(1024, help="Maximum sentence length in tokens, for learned positions")
    share_all_embeddings: bool | None = share_all_option(False)

    def __post_init__(self) -> None:
        check_sizes(self, ConvS2SConfig)
        for group in self.encoder_groups():
            if group.kernel % 2 == 0:
                raise UsageError(
                    f"model.encoder_convolutions has '{group}', but the encoder's convolutions are centered; use an odd "
                    f"kernel width"
                )
        self.decoder_groups()
        if self.share_all_embeddings is not False and self.output_size != self.embedding_size:
            raise UsageError(
                f"model.output_size={self.output_size} differs from model.embedding_size={self.embedding_size}, so one "
                f"matrix cannot serve both; make them equal or set model.share_all_embeddings=false"
            )

    def encoder_groups(self) -> list[Group]:
        return _groups(self.encoder_convolutions, "model.encoder_convolutions")

    def decoder_groups(self) -> list[Group]:
        return _groups(self.decoder_convolutions, "model.decoder_convolutions")

    def shrink(self) -> ConvS2SConfig:
        return replace(
            self,
            embedding_size=10,
            encoder_convolutions=_shrunk(self.encoder_groups()),
            decoder_convolutions=_shrunk(self.decoder_groups()),
            output_size=10 if self.output_size == self.embedding_size else 8,
            max_positions=min(self.max_positions, 64),
        )


def _groups(texts: list[str], where: str) -> list[Group]:
    if not texts:
        raise UsageError(f"{where} is empty; give at least one group of layers, such as 4x256x3")
    return [Group.parse(text, where) for text in texts]


def _shrunk(groups: list[Group]) -> list[str]:
    """Shrink groups; different widths stay different, and a single group keeps two layers."""
    widths = sorted({group.channels for group in groups})
    most = 2 if len(groups) == 1 else 1
    return [str(Group(min(group.count, most), 8 + 4 * widths.index(group.channels), group.kernel)) for group in groups]
