"""The options of models with a memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import require_at_most, require_not_negative, require_positive
from nmt.config.option import ShortRepr, flag, option
from nmt.errors import UsageError
from nmt.models import models
from nmt.models.config import LARGEST_FACTOR, MOST_PARTS, at_most, check_sizes, check_symbol_bits


class SlotPositions(Enum):
    """The direction in which slot positions are counted."""

    end = "end"  # from the end of the sentence, as in the paper
    start = "start"
    both = "both"  # the sum of both


@models.declare("memory_network", "memory_network")
@dataclass
class MemoryNetworkConfig(ShortRepr):
    """Sizes and variants of the memory network."""

    num_hops: int = option(3, help="Number of memory reads (hops) per output token", flag="--hops")
    slot_size: int = option(256, help="Width of a memory slot")
    places: SlotPositions = option(
        SlotPositions.end, help="Side from which slot positions are counted: end (the paper), start or both"
    )
    max_positions: int = option(
        1024, help="Maximum source length in tokens including eos; each slot position has a vector"
    )
    embedding_size: int = option(256, help="Width of the target embeddings")
    hidden_size: int = option(256, help="Hidden size of the decoder LSTM, whose state is the query")
    num_layers: int = option(1, help="Number of decoder LSTM layers")
    init_std: float = option(
        0.1,
        help="Standard deviation of the initial slots, slot positions and output layer",
    )
    dropout: float = flag(
        0.1, help="Dropout of the embeddings, between layers, of the query and before the output layer"
    )

    def __post_init__(self) -> None:
        check_sizes(self, MemoryNetworkConfig)
        require_positive("model", init_std=self.init_std)

    def shrink(self) -> MemoryNetworkConfig:
        small = at_most(self, max_positions=64, num_layers=2)
        return replace(self, **small, slot_size=12, embedding_size=10, hidden_size=16)


LARGEST_DROPOUT = 1 / 3  # the rate for a sentence of one token is three times the option


@models.declare("neural_gpu", "neural_gpu")
@dataclass
class NeuralGPUConfig(ShortRepr):
    """Sizes; the defaults are those of the authors' published code, where it has them."""

    num_maps: int = option(64, help="Number of maps of an image (components of each cell)")
    height: int = option(4, help="Height of an image; its width depends on the source length")
    num_convs: int = option(2, help="Number of gated convolutions per step")
    embedding_size: int = option(64, help="Width of the source embeddings")
    width_a: float = option(1.2, help="Factor in the image width: width_a * source length (eos included) + width_b")
    width_b: float = option(
        10, help="Constant in the image width, which is also the maximum target length (eos included); see width_a"
    )
    dropout: float = flag(0.1, help="Dropout of an image before each step, at a rate of 3 * dropout / sqrt(length)")

    def __post_init__(self) -> None:
        check_sizes(self, NeuralGPUConfig)
        require_not_negative("model", width_b=self.width_b)
        require_at_most("model", LARGEST_FACTOR, width_a=self.width_a)
        require_at_most("model", MOST_PARTS, width_b=self.width_b)
        if not 1 <= self.width_a < math.inf:
            raise UsageError(f"model.width_a={self.width_a} must be at least 1: the image must hold the whole source")
        if not 0.0 <= self.dropout < LARGEST_DROPOUT:
            raise UsageError(
                f"model.dropout={self.dropout} must be at least 0 and less than 1/3: the rate is "
                f"3 * dropout / sqrt(length), and a sentence may have one token"
            )

    def shrink(self) -> NeuralGPUConfig:
        return replace(self, **at_most(self, height=2, num_convs=2), num_maps=6, embedding_size=5)


class ControllerKind(Enum):
    """The kind of controller."""

    lstm = "lstm"
    feed_forward = "feed_forward"


class MemoryStart(Enum):
    """The memory before the first step."""

    learned = "learned"  # trained, initialized with small random rows
    random = "random"  # small random rows, not trained
    constant = "constant"  # a small constant


class SymbolKind(Enum):
    """The encoding of symbols."""

    learned = "learned"  # an embedding, and a softmax over the vocabulary
    binary = "binary"  # fixed bit vectors, and a logistic output for each bit


@models.declare("neural_turing_machine", "neural_turing_machine")
@dataclass
class NeuralTuringMachineConfig(ShortRepr):
    """Sizes and variants; the defaults are the paper's machine for copying, with learned symbols."""

    controller: ControllerKind = option(ControllerKind.lstm, help="Controller: lstm or feed_forward")
    controller_size: int = option(100, help="Hidden size of the controller")
    memory_slots: int = option(128, help="Number of memory slots (rows; the paper's N)")
    memory_width: int = option(20, help="Number of components per slot (the paper's M)")
    read_heads: int = option(1, help="Number of read heads")
    write_heads: int = option(1, help="Number of write heads")
    shift_range: int = option(1, help="Maximum shift of a head in either direction, in slots")
    memory_start: MemoryStart = option(
        MemoryStart.learned, help="Memory before the first step: learned, random or constant"
    )
    symbols: SymbolKind = option(
        SymbolKind.learned, help="Symbols: learned (embeddings) or binary (bit vectors as input and output)"
    )
    symbol_bits: int | None = option(
        None,
        help="Number of bits per binary symbol; ids beyond 4 + 2^bits are delimiters; null: the fewest "
        "that hold the vocabulary",
    )
    embedding_size: int = option(64, help="Width of the learned embeddings")
    feed_output: bool = option(True, help="Feed the last symbol as the next input; otherwise no input while answering")
    dropout: float = flag(0.0, help="Dropout of the inputs and before the output layer")

    def __post_init__(self) -> None:
        check_symbol_bits(self.symbol_bits)
        check_sizes(self, NeuralTuringMachineConfig)
        if self.memory_slots <= 2 * self.shift_range:
            raise UsageError(
                f"model.memory_slots={self.memory_slots} is too few for shifts of up to model.shift_range="
                f"{self.shift_range} slots in both directions; use at least {2 * self.shift_range + 1} slots"
            )

    def shrink(self) -> NeuralTuringMachineConfig:
        slots = 7 + 2 * self.shift_range
        width = 10 if self.symbols is SymbolKind.learned else self.embedding_size
        return replace(self, controller_size=16, memory_slots=slots, memory_width=6, embedding_size=width)
