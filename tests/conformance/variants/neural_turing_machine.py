"""What no preset of the Neural Turing Machine uses."""

from __future__ import annotations

from nmt.models.memory.config import (
    ControllerKind,
    MemoryStart,
    NeuralTuringMachineConfig,
    SymbolKind,
)
from nmt.testing.conformance import Subject

VARIANTS = (
    Subject(
        "ntm_many_heads",
        NeuralTuringMachineConfig(
            controller=ControllerKind.feed_forward,
            read_heads=2,
            write_heads=3,
            shift_range=2,
            memory_start=MemoryStart.random,
        ).shrink(),
    ),
    Subject(
        "ntm_binary_fed",  # as few bits as hold the vocabulary
        NeuralTuringMachineConfig(symbols=SymbolKind.binary, memory_start=MemoryStart.constant).shrink(),
    ),
    Subject(
        "ntm_binary_delimiters",  # 8 symbols, and delimiters beyond them
        NeuralTuringMachineConfig(symbols=SymbolKind.binary, symbol_bits=3).shrink(),
    ),
)
