"""The options of the Neural Turing Machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from nmt.config.checks import require_positive, require_share
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.models import models
from nmt.models.symbol_bits import check_symbol_bits


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


@models.declare("neural_turing_machine")
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
    dropout: float = option(0.0, help="dropout of the inputs and before the output layer", flag="--dropout")

    def __post_init__(self) -> None:
        require_positive("model", controller_size=self.controller_size, embedding_size=self.embedding_size)
        require_positive("model", memory_slots=self.memory_slots, memory_width=self.memory_width)
        require_positive("model", read_heads=self.read_heads, write_heads=self.write_heads)
        require_positive("model", shift_range=self.shift_range)
        check_symbol_bits(self.symbol_bits)
        require_share("model", dropout=self.dropout)
        if self.memory_slots <= 2 * self.shift_range:
            raise UsageError(
                f"model.memory_slots={self.memory_slots} is too few for steps of up to model.shift_range="
                f"{self.shift_range} slots either way; use at least {2 * self.shift_range + 1} slots"
            )

    def shrink(self) -> NeuralTuringMachineConfig:
        """The same structure in small sizes, for tests."""
        slots = 7 + 2 * self.shift_range
        return replace(self, controller_size=16, memory_slots=slots, memory_width=6, embedding_size=10)
