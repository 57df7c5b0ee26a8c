"""The options of the Neural GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.models import models

LARGEST_DROPOUT = 1 / 3  # the rate for a sentence of one piece is three times the option


@models.declare("neural_gpu")
@dataclass
class NeuralGPUConfig:
    """Sizes; the defaults are those of the authors' published code, where it has them."""

    num_maps: int = option(64, help="maps of an image: numbers in each of its cells")
    height: int = option(4, help="height of an image; its width follows the sentence")
    num_convs: int = option(2, help="gated convolutions of a step")
    embedding_size: int = option(64, help="width of the source embeddings")
    width_a: float = option(1.2, help="width of an image: width_a * source length (eos included) + width_b")
    width_b: float = option(10, help="see width_a; a target (eos included) cannot be longer than the width")
    dropout: float = option(
        0.1, help="dropout of an image before each step; its rate is 3 * dropout / sqrt(length)", flag="--dropout"
    )

    def __post_init__(self) -> None:
        require_positive("model", num_maps=self.num_maps, height=self.height, num_convs=self.num_convs)
        require_positive("model", embedding_size=self.embedding_size)
        require_not_negative("model", width_b=self.width_b)
        if self.width_a < 1:
            raise UsageError(f"model.width_a={self.width_a} must be at least 1: an image holds the whole source")
        if not 0.0 <= self.dropout < LARGEST_DROPOUT:
            raise UsageError(
                f"model.dropout={self.dropout} must be at least 0 and less than 1/3: the rate is "
                f"3 * dropout / sqrt(length), and a sentence may have one piece"
            )

    def shrink(self) -> NeuralGPUConfig:
        """The same structure in small sizes, for tests."""
        return replace(self, num_maps=6, height=min(self.height, 2), num_convs=min(self.num_convs, 2), embedding_size=5)
