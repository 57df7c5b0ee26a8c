"""The options of ByteNet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import require_not_negative, require_positive, require_share
from nmt.config.option import FlagKind, option
from nmt.errors import UsageError
from nmt.models import models


class CombinationKind(Enum):
    """How the encoder's output enters the decoder."""

    add = "add"
    concat = "concat"


@models.declare("bytenet")
@dataclass
class ByteNetConfig:
    """Sizes; the defaults are the paper's model for translation (section 6)."""

    hidden_size: int = option(800, help="hidden units d of a residual block; the stream between blocks has 2 d")
    encoder_sets: int = option(6, help="how often the encoder repeats the dilations, one residual block for each")
    decoder_sets: int = option(6, help="how often the decoder repeats the dilations, one residual block for each")
    dilations: list[int] = option([1, 2, 4, 8, 16], help="dilation of each residual block of a set")
    encoder_kernel: int = option(3, help="kernel width of the encoder's convolutions")
    decoder_kernel: int = option(3, help="kernel width of the decoder's masked convolutions")
    unfold_a: float = option(1.2, help="the encoder's output has unfold_a * source length + unfold_b positions")
    unfold_b: float = option(0.0, help="see unfold_a")
    combination: CombinationKind = option(
        CombinationKind.add, help="the encoder's output is added to the target's embedding, or concatenated (concat)"
    )
    dropout: float = option(0.0, help="dropout of the embeddings and of each block's output", flag="--dropout")
    share_all_embeddings: bool | None = option(
        False,
        help="one matrix for source, target and output; null: if the vocabulary is joint",
        flag="--share-all-embeddings",
        kind=FlagKind.switch,
    )

    def __post_init__(self) -> None:
        require_positive("model", hidden_size=self.hidden_size, unfold_a=self.unfold_a)
        require_positive("model", encoder_sets=self.encoder_sets, decoder_sets=self.decoder_sets)
        require_positive("model", encoder_kernel=self.encoder_kernel, decoder_kernel=self.decoder_kernel)
        require_not_negative("model", unfold_b=self.unfold_b)
        require_share("model", dropout=self.dropout)
        if not self.dilations or min(self.dilations) < 1:
            raise UsageError(
                f"model.dilations={self.dilations} should be whole numbers from 1 up, such as [1,2,4,8,16]"
            )
        if self.encoder_kernel % 2 == 0:
            raise UsageError(
                f"model.encoder_kernel={self.encoder_kernel} is even, but the encoder looks as far back as ahead; use "
                f"an odd width"
            )

    def shrink(self) -> ByteNetConfig:
        """The same structure in small sizes, for tests."""
        return replace(
            self, hidden_size=8, encoder_sets=min(self.encoder_sets, 1), decoder_sets=min(self.decoder_sets, 1)
        )
