"""torch's recurrent layers with packed weights, for translating.

Shapes: N rows, T positions, I inputs, H outputs, C cells, G gates (4 C or 3 H).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from nmt.config.choices import NumberFormat
from nmt.native.packing import Packed

State = tuple[Tensor, ...]  # [N, H], and an LSTM's cells [N, C]


class PackedRNN(nn.Module, ABC):
    """One layer in one direction. A row's result does not depend on the rows beside it.

    Weights stay in float32: what int8 rounds away would add up along a sentence. Sigmoid and tanh are in float64, since
    in float32 torch computes them a last bit differently at the end of a block of numbers.
    """

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        weights = {name: parameter.detach() for name, parameter in rnn.named_parameters()}
        self.hidden_size, self.proj_size = rnn.hidden_size, rnn.proj_size
        self.of_input = Packed(weights["weight_ih_l0"], None, NumberFormat.float32)
        self.of_state = Packed(weights["weight_hh_l0"], weights["bias_hh_l0"], NumberFormat.float32)
        self.input_bias = weights["bias_ih_l0"]

    def forward(
        self, x: Tensor, state: Tensor | tuple[Tensor, Tensor], lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """As torch's layer: of x [N, T, I] and the state before it, [1, N, H] or two of them, outputs [N, T, H] and the
        state after it; with ``lengths`` [N] the state after that many positions, and outputs there stay as they are."""
        now = tuple(part[0] for part in state) if isinstance(state, tuple) else (state[0],)
        given, outputs = self.of_input(x) + self.input_bias, []
        for position in range(x.size(1)):
            following = self.step(given[:, position], now)
            if lengths is not None:
                reads = (position < lengths)[:, None]
                following = tuple(torch.where(reads, new, old) for new, old in zip(following, now))
            now = following
            outputs.append(now[0])
        after = tuple(part[None] for part in now)
        return torch.stack(outputs, dim=1), after if isinstance(state, tuple) else after[0]

    @abstractmethod
    def step(self, given: Tensor, state: State) -> State:
        """The state after one position, of which ``given`` [N, G] is what the input brings to the gates."""


class PackedLSTM(PackedRNN):
    """With a projection of the output, if there is one."""

    def __init__(self, rnn: nn.LSTM) -> None:
        super().__init__(rnn)
        projection = rnn.get_parameter("weight_hr_l0") if rnn.proj_size else None
        self.projection = None if projection is None else Packed(projection, None, NumberFormat.float32)

    def step(self, given: Tensor, state: State) -> State:
        output, cells = state
        reading, keeping, new, showing = (given + self.of_state(output)).double().chunk(4, dim=1)
        cells = (keeping.sigmoid() * cells + reading.sigmoid() * new.tanh()).float()
        output = (showing.sigmoid() * cells.double().tanh()).float()
        return (output if self.projection is None else self.projection(output)), cells


class PackedGRU(PackedRNN):
    def step(self, given: Tensor, state: State) -> State:
        (output,) = state
        reset, update, new = given.double().chunk(3, dim=1)
        before_reset, before_update, before_new = self.of_state(output).double().chunk(3, dim=1)
        new = (new + (reset + before_reset).sigmoid() * before_new).tanh()
        update = (update + before_update).sigmoid()
        return (((1 - update) * new + update * output).float(),)
