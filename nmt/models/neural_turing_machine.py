"""The Neural Turing Machine: Graves, Wayne and Danihelka 2014, arXiv:1410.5401.

One machine reads the source, keeps its state, and answers from it: the encoder and the decoder are the same network, and
what the encoder leaves behind is not a memory of states but the machine itself.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
E input channels, C controller, H heads (R that read), L slots of the memory, W width of a slot, D = C + R W, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor, nn

from nmt.config.option import option
from nmt.config.sections import require_positive
from nmt.data.vocabulary import BOS
from nmt.errors import UsageError
from nmt.interface import (
    AttentionMaps,
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    OutputLayer,
    Scoring,
    StepOutput,
    VocabularySizes,
)
from nmt.models import models
from nmt.models.binary_symbols import binary_embeddings, binary_output, check_symbol_bits
from nmt.models.output_layers import LinearOutput
from nmt.modules.dropout import Dropout
from nmt.modules.embeddings import Embedding
from nmt.modules.memory_machine import (
    Controller,
    FeedForwardController,
    Heads,
    LSTMController,
    MachineState,
    MemoryMachine,
    StartingMemory,
)
from nmt.modules.padding import real_rows

CONSTANT_START = 1e-6
SMALL_START = 0.05  # standard deviation


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
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(f"model.dropout={self.dropout} must be at least 0 and less than 1")
        if self.memory_slots <= 2 * self.shift_range:
            raise UsageError(
                f"model.memory_slots={self.memory_slots} is too few for steps of up to model.shift_range="
                f"{self.shift_range} slots either way; use at least {2 * self.shift_range + 1} slots"
            )

    def shrink(self) -> NeuralTuringMachineConfig:
        """The same structure in small sizes, for tests."""
        slots = 7 + 2 * self.shift_range
        return replace(self, controller_size=16, memory_slots=slots, memory_width=6, embedding_size=10)


@dataclass
class NTMMemory(Memory):
    """The machine as it stands after reading the source."""

    machine: MachineState  # B rows
    output: Scoring  # over the shortlist, if there is one


@dataclass
class NTMState(DecoderState):
    """The machine of each hypothesis."""

    machine: MachineState  # N rows


@models.register("neural_turing_machine", NeuralTuringMachineConfig)
class NeuralTuringMachine(EncoderDecoder):
    """A controller that reads and writes an external memory.

    The end of the source tells the machine to answer, and bos is the first input of its answer. From then on it gets the
    last symbol, as every language model of the output needs (``feed_output``), or nothing, as in the paper, where the
    answer follows from the memory alone. It attends to slots of its memory, not to the source: no attention is reported.
    """

    def __init__(self, config: NeuralTuringMachineConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = config.controller_size
        self.feed_output = config.feed_output
        self.source_embedding, self.target_embedding, channels = _embeddings(config, sizes)
        self.dropout = Dropout(config.dropout)
        self.machine = _machine(config, channels)
        outputs = config.controller_size + config.read_heads * config.memory_width
        self.output = _output(config, outputs, sizes.target)

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        inputs = self.dropout(self.source_embedding(source))  # [B, S, E]
        return NTMMemory(self.machine.absorb(inputs, source_lengths), self.output)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, NTMMemory)
        outputs, _ = self.machine.answer(self._inputs(batch.target_in), memory.machine)  # [B, T, D]
        hidden = real_rows(outputs, batch.target_lengths, batch.target_offsets, batch.num_tokens)  # [M, D]
        return DecoderOutput(self.dropout(hidden), AttentionMaps({}) if attention else None)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, NTMMemory)
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        machine = memory.machine.map(lambda tensor: tensor.repeat_interleave(beam_size, dim=0))
        return replace(memory, output=output), NTMState(machine)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, NTMMemory) and isinstance(state, NTMState)
        outputs, machine = self.machine.answer(self._inputs(tokens[:, None]), state.machine)  # [N, 1, D]
        return StepOutput(memory.output.logits(self.dropout(outputs[:, 0])), False, NTMState(machine))

    def _inputs(self, tokens: Tensor) -> Tensor:
        """What the machine gets while it answers. [N, T] -> [N, T, E]"""
        embedded: Tensor = self.dropout(self.target_embedding(tokens))
        return embedded if self.feed_output else embedded * (tokens == BOS)[..., None]


def _embeddings(config: NeuralTuringMachineConfig, sizes: VocabularySizes) -> tuple[nn.Module, nn.Module, int]:
    """Of source and target, and the number of input channels."""
    if config.symbols is SymbolKind.learned:
        width = config.embedding_size
        return Embedding(sizes.source, width), Embedding(sizes.target, width), width
    return binary_embeddings(sizes, config.symbol_bits)


def _machine(config: NeuralTuringMachineConfig, channels: int) -> MemoryMachine:
    heads = Heads(
        config.controller_size, config.read_heads, config.write_heads, config.memory_width, config.shift_range
    )
    return MemoryMachine(_controller(config, channels), heads, _starting_memory(config))


def _controller(config: NeuralTuringMachineConfig, channels: int) -> Controller:
    kind = LSTMController if config.controller is ControllerKind.lstm else FeedForwardController
    return kind(channels, config.read_heads * config.memory_width, config.controller_size)


def _starting_memory(config: NeuralTuringMachineConfig) -> StartingMemory:
    shape = config.memory_slots, config.memory_width
    if config.memory_start is MemoryStart.constant:
        return StartingMemory(torch.full(shape, CONSTANT_START), learned=False)
    return StartingMemory(torch.randn(shape) * SMALL_START, learned=config.memory_start is MemoryStart.learned)


def _output(config: NeuralTuringMachineConfig, hidden_size: int, vocabulary_size: int) -> OutputLayer:
    if config.symbols is SymbolKind.binary:
        return binary_output(hidden_size, vocabulary_size, config.symbol_bits)
    output = nn.Linear(hidden_size, vocabulary_size)
    return LinearOutput(output.weight.detach(), output.bias.detach())
