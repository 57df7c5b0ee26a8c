"""The Neural Turing Machine: Graves, Wayne and Danihelka 2014, arXiv:1410.5401.

One machine reads the source, keeps its state, and answers from it: the encoder and the decoder are the same network, and
what the encoder leaves behind is not a memory of states but the machine itself.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
E input channels, C controller, H heads (R that read), L slots of the memory, W width of a slot, D = C + R W, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from nmt.data.vocabulary import BOS
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
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Embedding
from nmt.layers.padding import real_rows
from nmt.models import models
from nmt.models.binary_symbols import binary_embeddings, binary_output
from nmt.models.memory.memory_machine import (
    Controller,
    FeedForwardController,
    Heads,
    LSTMController,
    MachineState,
    MemoryMachine,
    StartingMemory,
)
from nmt.models.memory.neural_turing_machine_config import (
    ControllerKind,
    MemoryStart,
    NeuralTuringMachineConfig,
    SymbolKind,
)
from nmt.models.output_layers import LinearOutput

CONSTANT_START = 1e-6
SMALL_START = 0.05  # standard deviation


@dataclass
class NTMMemory(Memory):
    """The machine as it stands after reading the source."""

    machine: MachineState  # B rows
    output: Scoring | None = field(default=None, kw_only=True)  # over the short list, if there is one


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
        return NTMMemory(self.machine.absorb(inputs, source_lengths))

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, NTMMemory)
        outputs, _ = self.machine.answer(self._inputs(batch.target_in), memory.machine)  # [B, T, D]
        hidden = real_rows(outputs, batch.target_lengths, batch.target_offsets, batch.num_tokens)  # [M, D]
        return DecoderOutput(self.dropout(hidden), AttentionMaps({}) if attention else None)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, NTMMemory)
        restricted = None if vocabulary is None else self.output.restrict(vocabulary)
        machine = memory.machine.map(lambda tensor: tensor.repeat_interleave(beam_size, dim=0))
        return replace(memory, output=restricted), NTMState(machine)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, NTMMemory) and isinstance(state, NTMState)
        outputs, machine = self.machine.answer(self._inputs(tokens[:, None]), state.machine)  # [N, 1, D]
        return StepOutput(self.scores(self.dropout(outputs[:, 0]), memory.output), False, NTMState(machine))

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
