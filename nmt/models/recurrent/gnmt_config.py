"""The options of GNMT."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nmt.config.checks import require_positive, require_share
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.models import models


@models.declare("gnmt")
@dataclass
class GNMTConfig:
    """Sizes; the defaults are those of the paper."""

    encoder_layers: int = option(8, help="LSTM layers of the encoder; the first reads in both directions")
    decoder_layers: int = option(8, help="LSTM layers of the decoder")
    embedding_size: int = option(1024, help="width of the embeddings")
    hidden_size: int = option(1024, help="width of every layer, and of each direction of the first one")
    residual_from: int = option(3, help="first layer, counted from 1, whose input is added to its output")
    init_range: float = option(0.04, help="every parameter starts uniformly within plus and minus this")
    dropout: float = option(0.2, help="dropout of every layer's input and before the output layer", flag="--dropout")

    def __post_init__(self) -> None:
        require_positive("model", encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers)
        require_positive("model", embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        require_positive("model", residual_from=self.residual_from, init_range=self.init_range)
        require_share("model", dropout=self.dropout)
        if self.decoder_layers < 2:
            raise UsageError(
                f"decoder_layers={self.decoder_layers} leaves no layer that sees the source: the bottom one only asks; use "
                f"2 or more"
            )
        if self.residual_from < 3:
            raise UsageError(
                f"residual_from={self.residual_from} would add inputs of another width: layer 1 reads embeddings, layer 2 "
                f"both directions; use 3 or more"
            )

    def shrink(self) -> GNMTConfig:
        """The same structure in small sizes, for tests."""
        return replace(
            self,
            encoder_layers=min(self.encoder_layers, 4),
            decoder_layers=min(self.decoder_layers, 4),
            embedding_size=10,
            hidden_size=12,
        )
