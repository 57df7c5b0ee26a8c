"""The options of the memory network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import require_positive, require_share
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.models import models


class Places(Enum):
    """How a slot's place is counted."""

    end = "end"  # from the end of the sentence, as in the paper
    start = "start"
    both = "both"  # both, added


@models.declare("memory_network")
@dataclass
class MemoryNetworkConfig:
    """Sizes and variants of the memory network."""

    num_hops: int = option(3, help="how often the memory is read for an output", flag="--hops")
    slot_size: int = option(256, help="width of a memory slot, and of what is read from it")
    places: Places = option(Places.end, help="where slots are counted from: end (the paper), start or both")
    max_positions: int = option(1024, help="longest source in pieces, eos included; each place has its own vector")
    embedding_size: int = option(256, help="width of the target embeddings")
    hidden_size: int = option(256, help="hidden size of the decoder LSTM, whose state is the question")
    num_layers: int = option(1, help="layers of the decoder LSTM")
    init_std: float = option(
        0.1,
        help="standard deviation of the initial slots, places and output layer; the paper's slots are sums of words",
    )
    dropout: float = option(
        0.1, help="dropout of the embeddings, between layers, of the question and before the output", flag="--dropout"
    )

    def __post_init__(self) -> None:
        require_positive("model", num_hops=self.num_hops, slot_size=self.slot_size, max_positions=self.max_positions)
        require_positive("model", embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        require_positive("model", num_layers=self.num_layers)
        if self.init_std <= 0.0:
            raise UsageError(f"model.init_std={self.init_std} must be greater than 0")
        require_share("model", dropout=self.dropout)

    def shrink(self) -> MemoryNetworkConfig:
        """The same structure in small sizes, for tests."""
        return replace(
            self,
            slot_size=12,
            max_positions=min(self.max_positions, 64),
            embedding_size=10,
            hidden_size=16,
            num_layers=min(self.num_layers, 2),
        )
