"""A controller beside a memory, step by step: Graves, Wayne and Danihelka 2014, arXiv:1410.5401, section 3.

Shapes: B sentences or hypotheses, T steps, E inputs, C controller, H heads (R that read, then those that write),
L slots of the memory, W width of a slot, D = C + R W outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.models.memory.memory_addressing import Address, head_weights, read, write
from nmt.trees import RowTree


@dataclass
class MachineState(RowTree):
    """All that a machine knows between two steps."""

    memory: Tensor  # [B, L, W]
    weights: Tensor  # [B, H, L] where each head looked last
    reads: Tensor  # [B, R W] what the reading heads saw there
    controller: tuple[Tensor, ...]  # [B, C] each; () if it has no memory of its own

    def where(self, chosen: Tensor, other: MachineState) -> MachineState:
        """This state in the rows chosen [B], the other one elsewhere."""
        return MachineState(
            torch.where(chosen[:, None, None], self.memory, other.memory),
            torch.where(chosen[:, None, None], self.weights, other.weights),
            torch.where(chosen[:, None], self.reads, other.reads),
            tuple(torch.where(chosen[:, None], new, old) for new, old in zip(self.controller, other.controller)),
        )


class Controller(nn.Module, ABC):
    """The network that sees the input and what was read last, and tells the heads what to do."""

    def prepare(self, inputs: Tensor) -> Tensor:
        """What depends on the inputs alone, for all steps at once. [B, T, E] -> [B, T, ...]"""
        return inputs

    @abstractmethod
    def start(self) -> tuple[Tensor, ...]:
        """Its state before the first step, [C] each."""

    @abstractmethod
    def forward(self, prepared: Tensor, reads: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Prepared input [B, ...], reads [B, R W] -> hidden [B, C] and its next state."""


class FeedForwardController(Controller):
    """h = tanh(W x + U r + b): whatever it wants to remember, it must write."""

    def __init__(self, input_size: int, reads_size: int, size: int) -> None:
        super().__init__()
        self.of_input = nn.Linear(input_size, size)
        self.of_reads = nn.Linear(reads_size, size, bias=False)

    def prepare(self, inputs: Tensor) -> Tensor:
        projected: Tensor = self.of_input(inputs)
        return projected

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
    """One linear map from the controller to all that the heads need; the paper's constraints on each part."""

    def __init__(self, controller_size: int, num_read: int, num_write: int, slot_width: int, shift_range: int) -> None:
        super().__init__()
        self.num_read, self.num_write, self.slot_width = num_read, num_write, slot_width
        self.parts = [slot_width, 2 * shift_range + 1, 2, 1]  # key, shift, strength and sharpness, gate
        addresses = (num_read + num_write) * sum(self.parts)
        self.sizes = [addresses, num_write * slot_width, num_write * slot_width]
        self.signals = nn.Linear(controller_size, sum(self.sizes))

    def forward(self, hidden: Tensor, state: MachineState) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden [B, C] -> weights [B, H, L], the memory after writing [B, L, W], and what is read of it [B, R W].

        All heads address the memory as it was, and the reading heads then read it as the writing heads left it.
        """
        addresses, erase, add = torch.split(self.signals(hidden), self.sizes, dim=1)
        address = self._address(addresses.view(len(hidden), -1, sum(self.parts)))
        weights = head_weights(address, state.weights, state.memory)
        reading, writing = torch.split(weights, [self.num_read, self.num_write], dim=1)
        erase, add = (part.view(len(hidden), -1, self.slot_width) for part in (torch.sigmoid(erase), add))
        memory = write(state.memory, writing, erase, add)
        return weights, memory, read(memory, reading).flatten(1)

    def _address(self, signals: Tensor) -> Address:
        keys, shift, positive, gate = torch.split(signals, self.parts, dim=2)
        strength, sharpness = torch.split(F.softplus(positive), 1, dim=2)
        return Address(keys, strength, torch.sigmoid(gate), torch.softmax(shift, dim=2), 1 + sharpness)


class StartingMemory(nn.Module):
    """The memory's content before the first step: learned, or the same for ever."""

    undecayed = ("slots",)  # a state, no map: weight decay would pull it to an empty memory

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
    """Controller, heads and memory. What it outputs at a step is the controller's hidden state and what was read."""

    undecayed = ("first_weights",)

    def __init__(self, controller: Controller, heads: Heads, memory: StartingMemory) -> None:
        super().__init__()
        self.controller, self.heads, self.memory = controller, heads, memory
        # Before the first step, section 4 resets everything to learned values.
        self.first_weights = nn.Parameter(_at_one_slot(heads.num_read + heads.num_write, len(memory())))
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
        """The state after reading inputs [B, T, E], each row stopped after its own number of steps [B]."""
        state = self.start(inputs.size(0))
        shortest = int(lengths.min())  # one synchronisation a batch spares most steps the choice between two states
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


def _at_one_slot(num_heads: int, num_slots: int) -> Tensor:
    """[H, L] logarithms of weights: all heads start at the same slot, nine tenths of them.

    A head that looks everywhere at once can be neither shifted nor sharpened, and must find content to begin with.
    """
    logits = torch.zeros(num_heads, num_slots)
    logits[:, 0] = math.log(9 * (num_slots - 1))
    return logits
