"""The options of models with a memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import flag, option
from nmt.errors import UsageError
from nmt.models import models
from nmt.models.config import at_most, check_sizes, check_symbol_bits


class Places(Enum):
    """How a slot's place is counted."""

    end = "end"  # from the end of the sentence, as in the paper
    start = "start"
    both = "both"  # both, added


@models.declare("memory_network", "memory_network")
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
    dropout: float = flag(0.1, help="dropout of the embeddings, between layers, of the question and before the output")

    def __post_init__(self) -> None:
        check_sizes(self, MemoryNetworkConfig)
        require_positive("model", init_std=self.init_std)

    def shrink(self) -> MemoryNetworkConfig:
        """The same structure in small sizes, for tests."""
        small = at_most(self, max_positions=64, num_layers=2)
        return replace(self, **small, slot_size=12, embedding_size=10, hidden_size=16)


LARGEST_DROPOUT = 1 / 3  # the rate for a sentence of one piece is three times the option


@models.declare("neural_gpu", "neural_gpu")
@dataclass
class NeuralGPUConfig:
    """Sizes; the defaults are those of the authors' published code, where it has them."""

    num_maps: int = option(64, help="maps of an image: numbers in each of its cells")
    height: int = option(4, help="height of an image; its width follows the sentence")
    num_convs: int = option(2, help="gated convolutions of a step")
    embedding_size: int = option(64, help="width of the source embeddings")
    width_a: float = option(1.2, help="width of an image: width_a * source length (eos included) + width_b")
    width_b: float = option(10, help="see width_a; a target (eos included) cannot be longer than the width")
    dropout: float = flag(0.1, help="dropout of an image before each step; its rate is 3 * dropout / sqrt(length)")

    def __post_init__(self) -> None:
        require_positive("model", num_maps=self.num_maps, height=self.height, num_convs=self.num_convs)
        require_positive("model", embedding_size=self.embedding_size)
        require_not_negative("model", width_b=self.width_b)
        if not 1 <= self.width_a < math.inf:
            raise UsageError(f"model.width_a={self.width_a} must be at least 1: an image holds the whole source")
        if not 0.0 <= self.dropout < LARGEST_DROPOUT:
            raise UsageError(
                f"model.dropout={self.dropout} must be at least 0 and less than 1/3: the rate is "
                f"3 * dropout / sqrt(length), and a sentence may have one piece"
            )

    def shrink(self) -> NeuralGPUConfig:
        """The same structure in small sizes, for tests."""
        return replace(self, **at_most(self, height=2, num_convs=2), num_maps=6, embedding_size=5)


class ControllerKind(Enum):
    """The network that drives the heads."""

    lstm = "lstm"
    feed_forward = "feed_forward"


class MemoryStart(Enum):
    """What the memory holds before the first step."""

    learned = "learned"  # small random rows at first
    random = "random"  # small random rows for ever
    constant = "constant"  # one small number everywhere


class SymbolKind(Enum):
    """How symbols enter and leave the machine."""

    learned = "learned"  # an embedding, and a softmax over the vocabulary
    binary = "binary"  # fixed bit vectors, and a logistic output for each bit


@models.declare("neural_turing_machine", "neural_turing_machine")
@dataclass
class NeuralTuringMachineConfig:
    """Sizes and variants; the defaults are the paper's machine for copying, with symbols of its own."""

    controller: ControllerKind = option(ControllerKind.lstm, help="lstm or feed_forward")
    controller_size: int = option(100, help="hidden size of the controller")
    memory_slots: int = option(128, help="slots of the memory (rows; the paper's N)")
    memory_width: int = option(20, help="numbers in a slot (the paper's M)")
    read_heads: int = option(1, help="heads that read")
    write_heads: int = option(1, help="heads that write")
    shift_range: int = option(1, help="farthest slot, either way, that a head can step to")
    memory_start: MemoryStart = option(
        MemoryStart.learned, help="memory before the first step: learned, random, constant"
    )
    symbols: SymbolKind = option(SymbolKind.learned, help="learned embeddings, or binary: bit vectors in and out")
    symbol_bits: int | None = option(
        None, help="bits of a binary symbol; ids beyond 4 + 2^bits are delimiters; null: as few as hold the vocabulary"
    )
    embedding_size: int = option(64, help="width of learned embeddings")
    feed_output: bool = option(True, help="the last symbol is the next input; false: it answers without any input")
    dropout: float = flag(0.0, help="dropout of the inputs and before the output layer")

    def __post_init__(self) -> None:
        check_symbol_bits(self.symbol_bits)
        check_sizes(self, NeuralTuringMachineConfig)
        if self.memory_slots <= 2 * self.shift_range:
            raise UsageError(
                f"model.memory_slots={self.memory_slots} is too few for steps of up to model.shift_range="
                f"{self.shift_range} slots either way; use at least {2 * self.shift_range + 1} slots"
            )

    def shrink(self) -> NeuralTuringMachineConfig:
        """The same structure in small sizes, for tests."""
        slots = 7 + 2 * self.shift_range
        return replace(self, controller_size=16, memory_slots=slots, memory_width=6, embedding_size=10)
