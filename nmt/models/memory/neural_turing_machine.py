"""The Neural Turing Machine: Graves, Wayne and Danihelka 2014, arXiv:1410.5401. Equation numbers are the paper's.

Encoder and decoder are the same network: the machine reads the source and then generates the target from its state. The
encoder output is the state of the machine.

Shapes: B sentences or hypotheses, T steps, E inputs, C controller, H heads (R that read, then those that write), L slots of
the memory (the paper's N), W width of a slot (its M), J = 2 r + 1 shifts by -r ... r slots, D = C + R W outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.data.vocabulary import BOS
from nmt.devices.kinds import device_of
from nmt.interface import DecoderState, Memory, OutputLayer, VocabularySizes
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Embedding
from nmt.models import models
from nmt.models.binary_symbols import binary_embeddings, binary_output
from nmt.models.memory.config import ControllerKind, MemoryStart, NeuralTuringMachineConfig, SymbolKind
from nmt.models.output_layers import LinearOutput, ScoredMemory
from nmt.models.recurrent.attentive_recurrent import ReadResult, Recurrent
from nmt.trees import tensors

SMALLEST_NORM = 1e-8  # of key times slot, so that the cosine with an empty slot is defined
SMALLEST_WEIGHT = 1e-8  # keeps the logarithm finite


def content_weights(keys: Tensor, strength: Tensor, memory: Tensor) -> Tensor:
    """softmax of strength x cosine of key and slot, equations 5 and 6. [B, H, W], [B, L, W] -> [B, H, L]"""
    products = torch.bmm(keys, memory.transpose(1, 2))
    key_norms = torch.linalg.vector_norm(keys, dim=-1, keepdim=True)  # [B, H, 1]
    slot_norms = torch.linalg.vector_norm(memory, dim=-1)[:, None]  # [B, 1, L]
    return torch.softmax(strength * products / (key_norms * slot_norms + SMALLEST_NORM), dim=-1)


def shift_around(weights: Tensor, shift: Tensor) -> Tensor:
    """Circular convolution, equation 8: slot i receives the share s(d) of slot i - d. [B, H, L], [B, H, J] -> [B, H, L]"""
    farthest = shift.size(-1) // 2
    shifted = torch.zeros_like(weights)
    for step, share in enumerate(torch.split(shift, 1, dim=-1), start=-farthest):
        shifted = shifted + share * torch.roll(weights, step, dims=-1)
    return shifted


def sharpen(weights: Tensor, sharpness: Tensor) -> Tensor:
    """weights^gamma, normalized: equation 9, through logarithms, so that no power underflows to a sum of zero."""
    return torch.softmax(sharpness * torch.log(weights + SMALLEST_WEIGHT), dim=-1)


def write(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """All heads erase, then all add: equations 3 and 4, independently of the order of the heads.

    memory [B, L, W], weights [B, H, L], erase and add [B, H, W] -> [B, L, W]
    """
    unit = memory.new_ones(())
    for weight, vector in zip(torch.split(weights, 1, dim=1), torch.split(erase, 1, dim=1)):
        memory = memory * torch.baddbmm(unit, weight.transpose(1, 2), vector, alpha=-1)  # 1 - w(i) e
    return torch.baddbmm(memory, weights.transpose(1, 2), add)


def read(memory: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of the slots, equation 2. [B, L, W], [B, H, L] -> [B, H, W]"""
    return torch.bmm(weights, memory)


@dataclass
class MachineState(DecoderState):
    """The state of a machine between two steps."""

    memory: Tensor  # [B, L, W]
    weights: Tensor  # [B, H, L] the last weights of each head
    reads: Tensor  # [B, R W] the last results of the reading heads
    controller: tuple[Tensor, ...]  # [B, C] each; () for a feed-forward controller

    def where(self, chosen: Tensor, other: MachineState) -> MachineState:
        """Return this state in the ``chosen`` rows [B], and ``other`` elsewhere."""
        others = tensors(other)
        return self.map(lambda new: torch.where(chosen.view(-1, *[1] * (new.dim() - 1)), new, next(others)))


class Controller(nn.Module, ABC):
    """The network that reads the input and the last reads, and controls the heads."""

    def prepare(self, inputs: Tensor) -> Tensor:
        """Compute what depends only on the inputs, for all steps at once. [B, T, E] -> [B, T, ...]"""
        return inputs

    @abstractmethod
    def start(self) -> tuple[Tensor, ...]:
        """Return the state before the first step, [C] each."""

    @abstractmethod
    def forward(self, prepared: Tensor, reads: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Prepared input [B, ...], reads [B, R W] -> hidden [B, C] and its next state."""


class FeedForwardController(Controller):
    """h = tanh(W x + U r + b), without a state."""

    def __init__(self, input_size: int, reads_size: int, size: int) -> None:
        super().__init__()
        self.of_input = nn.Linear(input_size, size)
        self.of_reads = nn.Linear(reads_size, size, bias=False)

    def prepare(self, inputs: Tensor) -> Tensor:
        return self.of_input(inputs)

    def start(self) -> tuple[Tensor, ...]:
        return ()

    def forward(self, prepared: Tensor, reads: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return torch.tanh(prepared + self.of_reads(reads)), ()


class LSTMController(Controller):
    """An LSTM over input and reads; its state before the first step is learned (section 4)."""

    def __init__(self, input_size: int, reads_size: int, size: int) -> None:
        super().__init__()
        # The bias is the weight of an input that is always 1: torch's own two biases would count twice.
        self.cell = nn.LSTMCell(input_size + reads_size + 1, size, bias=False)
        self.first_hidden = nn.Parameter(torch.zeros(size))
        self.first_cell = nn.Parameter(torch.zeros(size))

    def prepare(self, inputs: Tensor) -> Tensor:
        return F.pad(inputs, (0, 1), value=1.0)

    def start(self) -> tuple[Tensor, ...]:
        return self.first_hidden, self.first_cell

    def forward(self, prepared: Tensor, reads: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden, cell = self.cell(torch.cat([prepared, reads], dim=1), state)
        return hidden, (hidden, cell)


class Heads(nn.Module):
    """A linear map from the controller to the parameters of all heads, with the paper's constraints."""

    def __init__(self, controller_size: int, num_read: int, num_write: int, slot_width: int, shift_range: int) -> None:
        super().__init__()
        self.num_read, self.num_write, self.slot_width = num_read, num_write, slot_width
        self.parts = [slot_width, 2 * shift_range + 1, 2, 1]  # key, shift, strength and sharpness, gate
        addresses = (num_read + num_write) * sum(self.parts)
        self.sizes = [addresses, num_write * slot_width, num_write * slot_width]
        self.signals = nn.Linear(controller_size, sum(self.sizes))

    def forward(self, hidden: Tensor, state: MachineState) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden [B, C] -> weights [B, H, L], the memory after writing [B, L, W], and the reads [B, R W]

        All heads address the memory before the writes; the reading heads read it after them.
        """
        addresses, erase, add = torch.split(self.signals(hidden), self.sizes, dim=1)
        addresses = addresses.view(len(hidden), -1, sum(self.parts))
        keys, shift, positive, gate = torch.split(addresses, self.parts, dim=2)
        strength, excess = torch.split(F.softplus(positive), 1, dim=2)  # beta > 0, and gamma - 1 >= 0
        gate = torch.sigmoid(gate)  # g, from 0 (keep the last weights) to 1 (use the content weights)
        shift = torch.softmax(shift, dim=2)  # s, a distribution over -r ... r
        # Figure 2: content weights, interpolation (equation 7), shift, sharpening.
        content = content_weights(keys, strength, state.memory)
        gated = state.weights + gate * (content - state.weights)
        weights = sharpen(shift_around(gated, shift), 1 + excess)
        reading, writing = torch.split(weights, [self.num_read, self.num_write], dim=1)
        erase, add = (part.view(len(hidden), -1, self.slot_width) for part in (torch.sigmoid(erase), add))
        memory = write(state.memory, writing, erase, add)
        return weights, memory, read(memory, reading).flatten(1)


class StartingMemory(nn.Module):
    """The memory before the first step, learned or constant."""

    undecayed = ("slots",)  # a state: weight decay would pull it to an empty memory

    def __init__(self, slots: Tensor, learned: bool) -> None:
        super().__init__()
        if learned:
            self.slots: Tensor = nn.Parameter(slots)
        else:
            self.register_buffer("slots", slots)

    def forward(self) -> Tensor:
        """[L, W]"""
        return self.slots


class MemoryMachine(nn.Module):
    """Controller, heads and memory. The output of a step is the controller's hidden state and the reads."""

    undecayed = ("first_weights",)

    def __init__(self, controller: Controller, heads: Heads, memory: StartingMemory) -> None:
        super().__init__()
        self.controller, self.heads, self.memory = controller, heads, memory
        # The initial state is learned (section 4). All heads start with a weight of 0.9 on the same slot: shifting or
        # sharpening uniform weights has no effect.
        logits = torch.zeros(heads.num_read + heads.num_write, len(memory()))
        logits[:, 0] = math.log(9 * (logits.size(1) - 1))
        self.first_weights = nn.Parameter(logits)  # [H, L]
        self.first_reads = nn.Parameter(torch.zeros(heads.num_read * heads.slot_width))

    def start(self, rows: int) -> MachineState:
        first = MachineState(
            self.memory()[None],
            torch.softmax(self.first_weights, dim=1)[None],
            self.first_reads[None],
            tuple(state[None] for state in self.controller.start()),
        )
        return first.map(lambda tensor: tensor.expand(rows, *tensor.shape[1:]))

    def absorb(self, inputs: Tensor, lengths: Tensor) -> MachineState:
        """Return the state after reading inputs [B, T, E] of these lengths [B]."""
        state = self.start(inputs.size(0))
        # A CPU saves the selection of rows in most steps; an accelerator would be waited for.
        shortest = 0 if device_of(lengths).queues else int(lengths.min())
        for number, prepared in enumerate(self.controller.prepare(inputs).unbind(1)):
            _, after = self(prepared, state)
            state = after if number < shortest else after.where(number < lengths, state)
        return state

    def answer(self, inputs: Tensor, state: MachineState) -> tuple[Tensor, MachineState]:
        """Inputs [B, T, E] -> outputs [B, T, D] and the state after the last step."""
        outputs = []
        for prepared in self.controller.prepare(inputs).unbind(1):
            output, state = self(prepared, state)
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def forward(self, prepared: Tensor, state: MachineState) -> tuple[Tensor, MachineState]:
        """One step of all rows: the controller's prepared input [B, ...] -> output [B, D] and the next state."""
        hidden, controller = self.controller(prepared, state.reads, state.controller)
        weights, memory, reads = self.heads(hidden, state)
        return torch.cat([hidden, reads], dim=1), MachineState(memory, weights, reads, controller)


CONSTANT_START = 1e-6
SMALL_START = 0.05  # standard deviation


@dataclass
class NTMMemory(ScoredMemory):
    """The state of the machine after reading the source."""

    machine: MachineState  # B rows


@models.register("neural_turing_machine", NeuralTuringMachineConfig)
class NeuralTuringMachine(Recurrent):
    """A controller that reads and writes an external memory.

    After the eos of the source the machine answers; the first input of the answer is bos. The next inputs are the last
    symbols (``feed_output``), or zeros as in the paper, where the memory determines the answer. Its attention is to memory
    slots, not to the source, so no attention is reported.
    """

    def __init__(self, config: NeuralTuringMachineConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = size = config.controller_size
        self.feed_output = config.feed_output
        self.source_embedding, self.target_embedding, channels = _embeddings(config, sizes)
        self.dropout = Dropout(config.dropout)
        heads = Heads(size, config.read_heads, config.write_heads, config.memory_width, config.shift_range)
        kind = LSTMController if config.controller is ControllerKind.lstm else FeedForwardController
        reads = config.read_heads * config.memory_width
        self.machine = MemoryMachine(kind(channels, reads, size), heads, _starting_memory(config))
        if config.symbols is SymbolKind.binary:
            self.output: OutputLayer = binary_output(size + reads, sizes.target, config.symbol_bits)
        else:
            self.output = LinearOutput.with_bias(size + reads, sizes.target)

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        inputs = self.dropout(self.source_embedding(source))  # [B, S, E]
        return NTMMemory(self.machine.absorb(inputs, source_lengths))

    def begin(self, memory: NTMMemory, beam_size: int) -> MachineState:
        return memory.machine.map(lambda tensor: tensor.repeat_interleave(beam_size, dim=0))

    def read(self, tokens: Tensor, memory: NTMMemory, state: MachineState) -> ReadResult:
        outputs, after = self.machine.answer(self._inputs(tokens), state)
        return outputs, (), after

    def read_out(self, states: Tensor) -> Tensor:
        return self.dropout(states)

    def _inputs(self, tokens: Tensor) -> Tensor:
        """The inputs while the machine answers: [N, T] -> [N, T, E]"""
        embedded = self.dropout(self.target_embedding(tokens))
        return embedded if self.feed_output else embedded * (tokens == BOS)[..., None]


def _embeddings(config: NeuralTuringMachineConfig, sizes: VocabularySizes) -> tuple[nn.Module, nn.Module, int]:
    """Return the embeddings of source and target, and the number of input channels."""
    if config.symbols is SymbolKind.binary:
        return binary_embeddings(sizes, config.symbol_bits)
    width = config.embedding_size
    return Embedding(sizes.source, width), Embedding(sizes.target, width), width


def _starting_memory(config: NeuralTuringMachineConfig) -> StartingMemory:
    shape = config.memory_slots, config.memory_width
    if config.memory_start is MemoryStart.constant:
        return StartingMemory(torch.full(shape, CONSTANT_START), learned=False)
    return StartingMemory(torch.randn(shape) * SMALL_START, learned=config.memory_start is MemoryStart.learned)
