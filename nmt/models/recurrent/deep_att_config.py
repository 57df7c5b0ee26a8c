"""The options of Deep-Att."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nmt.config.checks import require_positive, require_share
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.models import models


@models.declare("deep_att")
@dataclass
class DeepAttConfig:
    """Sizes; the defaults are those of the paper."""

    encoder_layers: int = option(9, help="layers of each of the encoder's two columns")
    decoder_layers: int = option(7, help="layers of the decoder")
    embedding_size: int = option(256, help="width of the embeddings")
    hidden_size: int = option(512, help="width of every layer")
    dropout: float = option(0.1, help="dropout of the states between layers", flag="--dropout")

    def __post_init__(self) -> None:
        require_positive("model", encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers)
        require_positive("model", embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        require_share("model", dropout=self.dropout)
        if self.hidden_size % 2:
            raise UsageError(
                f"hidden_size={self.hidden_size} is odd, but the attention reads a quarter of ten times as many numbers; "
                f"use an even model.hidden_size"
            )

    @property
    def memory_size(self) -> int:
        """A quarter of [h, f] of both columns: 1,280 in the paper."""
        return 10 * self.hidden_size // 4

    def shrink(self) -> DeepAttConfig:
        """The same structure in small sizes, for tests."""
        return replace(
            self,
            encoder_layers=min(self.encoder_layers, 3),
            decoder_layers=min(self.decoder_layers, 3),
            embedding_size=8,
            hidden_size=10,
        )
