"""Recurrent layers whose states ignore padding, and stacks of them.

Shapes: B sentences, N hypotheses, S source positions, T positions, I inputs, H hidden size, P parts of a state.
The state of a layer is one tensor [N, P, H]: part 0 is the output, part 1 the cell of an LSTM.
"""

from __future__ import annotations

import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.linear import has_bf16_kernels
from nmt.layers.stack import Layers, Stack

SATURATING = 1e4  # an input at which the logistic function is exactly 0 or 1, in any data type

States = tuple[Tensor, ...]  # by layer: [N, P, H]


def reverse_within_lengths(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each sentence of x [B, S, ...] within its length; padding does not move."""
    positions = torch.arange(x.size(1), device=x.device)[None, :]
    last = lengths[:, None] - 1
    index = torch.where(positions <= last, last - positions, positions)  # [B, S]
    index = index.view(*index.shape, *([1] * (x.dim() - 2))).expand_as(x)
    return x.gather(1, index)


class RecurrentLayer(nn.Module, ABC):
    """A unidirectional layer of torch, over whole sentences or continued from a state."""

    parts: ClassVar[int]
    gates_at_padding: ClassVar[tuple[float, ...]]  # gate inputs, in torch's order, that keep the state unchanged

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn
        self.hidden_size = rnn.proj_size or rnn.hidden_size  # of the output

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """x [N, T, I] and the state [N, P, H] before it -> outputs [N, T, H] and the state after the last position"""
        return self._run(x, state, self.rnn.all_weights[0])

    def over_sentences(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, S, I] -> states [B, S, H], arbitrary at padding, and the state [B, P, H] after each sentence

        An additional input is 1 at padding. Its weights saturate the gates, so that the state stays exactly the same there.
        Packing instead would read the lengths on the CPU, and its backward pass is slow on a CPU.
        """
        start = self.zeros(x.size(0), x)
        gates = [x.new_full((self.rnn.hidden_size, 1), gate) for gate in self.gates_at_padding]
        padding = (torch.arange(x.size(1), device=x.device) >= lengths[:, None])[:, :, None].to(x.dtype)  # [B, S, 1]
        of_input, of_state, *biases = self.rnn.all_weights[0]
        weights = [torch.cat([of_input, torch.cat(gates)], dim=1), of_state, *biases]
        states, after = self._run(torch.cat([x, padding], dim=2), start, weights)
        # The output gate of an LSTM changes its output at padding, hence the last real state.
        last = states[torch.arange(len(x), device=x.device), lengths - 1]
        return states, self.join([last, *self.split(after)[1:]])

    def of_input(self, x: Tensor, most: int | None = None) -> Tensor:
        """W x [..., I] for all gates, or its first ``most`` components."""
        return F.linear(x, self.rnn.all_weights[0][0][:most])

    def zeros(self, rows: int, like: Tensor) -> Tensor:
        """Return a zero state [rows, P, H] with the data type and device of ``like``."""
        return like.new_zeros(rows, self.parts, self.hidden_size)

    def split(self, state: Tensor) -> tuple[Tensor, ...]:
        """[N, P, H] -> the output [N, H], and the cell of an LSTM"""
        return state.unbind(1)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The inverse of ``split``."""
        return torch.stack(list(parts), dim=1)

    @abstractmethod
    def _run(self, x: Tensor, start: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Call torch's function with these weights; return all states and the last state [N, P, H]."""


def _lacks_bf16(x: Tensor) -> bool:
    """Whether x would be computed in bf16 on a CPU for which oneDNN has no bf16 LSTM; it is computed in float32."""
    if x.device.type != "cpu" or has_bf16_kernels():
        return False
    autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16
    return x.dtype is torch.bfloat16 or autocast


class LSTMLayer(RecurrentLayer):
    """i, f, o = sigma(W x_t + U h_{t-1} + b), with separate W, U, b for each; g = tanh(W x_t + U h_{t-1} + b);
    c_t = f * c_{t-1} + i * g; h_t = o * tanh(c_t): Zaremba et al. 2014, arXiv:1409.2329, section 3.1 (no peepholes).

    torch has two biases for each, which it adds.
    """

    parts = 2
    gates_at_padding = (-SATURATING, SATURATING, 0.0, 0.0)  # input, forget, cell, output

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.LSTM(input_size, hidden_size, batch_first=True))

    def _run(self, x: Tensor, start: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        if _lacks_bf16(x):
            with torch.autocast("cpu", enabled=False):
                states, after = self._run(x.float(), start.float(), [weight.float() for weight in weights])
            return states.bfloat16(), after.bfloat16()
        before = tuple(part[None].contiguous() for part in self.split(start))
        states, hidden, cell = torch.lstm(x, before, list(weights), True, 1, 0.0, self.training, False, True)
        return states, self.join([hidden[0], cell[0]])


class ProjectedLSTMLayer(LSTMLayer):
    """An LSTM whose output h = W (o * tanh(c)) is narrower than its cell: Sak et al. 2014, arXiv:1402.1128, equation 6."""

    parts = 1  # [h; c]

    def __init__(self, input_size: int, cell_size: int, output_size: int) -> None:
        RecurrentLayer.__init__(self, nn.LSTM(input_size, cell_size, batch_first=True, proj_size=output_size))
        # torch warns once per process that oneDNN does not support projections; it falls back to its own kernel.
        warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")

    def zeros(self, rows: int, like: Tensor) -> Tensor:
        return like.new_zeros(rows, 1, self.hidden_size + self.rnn.hidden_size)

    def split(self, state: Tensor) -> tuple[Tensor, ...]:
        return state[:, 0, : self.hidden_size], state[:, 0, self.hidden_size :]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts), dim=1)[:, None]


class GRULayer(RecurrentLayer):
    """r, z = sigma(W x_t + U h_{t-1} + b); n = tanh(W x_t + b + r * (U h_{t-1} + b)); h_t = (1 - z) * n + z * h_{t-1}.

    Cho et al. 2014, arXiv:1406.1078, equations 5 to 8, which apply r before U; torch's order is that of cuDNN.
    """

    parts = 1
    gates_at_padding = (0.0, SATURATING, 0.0)  # reset, update, new

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.GRU(input_size, hidden_size, batch_first=True))

    def _run(self, x: Tensor, start: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        before = start[:, 0][None].contiguous()
        states, hidden = torch.gru(x, before, list(weights), True, 1, 0.0, self.training, False, True)
        return states, self.join([hidden[0]])


def read(layer: RecurrentLayer, x: Tensor, lengths: Tensor, backwards: bool) -> tuple[Tensor, Tensor]:
    """x [B, S, I] -> states [B, S, H] in the order of x, and the last state [B, P, H] in the direction of the layer"""
    if not backwards:
        return layer.over_sentences(x, lengths)
    states, last = layer.over_sentences(reverse_within_lengths(x, lengths), lengths)
    return reverse_within_lengths(states, lengths), last


class DirectedLayer(nn.Module):
    """An encoder layer that reads each sentence forwards or backwards."""

    def __init__(self, layer: RecurrentLayer, backwards: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.backwards = backwards

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, I] -> states [B, S, H] in the order of x, and the last state [B, P, H]."""
        return read(self.layer, x, lengths, self.backwards)


class BidirectionalLayer(nn.Module):
    """A bidirectional encoder layer; states and last states of both directions are merged."""

    def __init__(
        self, forward_layer: RecurrentLayer, backward_layer: RecurrentLayer, merge: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        """``merge`` combines two tensors [..., H]."""
        super().__init__()
        self.directions = nn.ModuleList([DirectedLayer(forward_layer), DirectedLayer(backward_layer, backwards=True)])
        self.merge = merge

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        (states, last), (back_states, back_last) = (direction(x, lengths) for direction in self.directions)
        return self.merge(states, back_states), self.merge(last, back_last)


def concatenated(onward: Tensor, backward: Tensor) -> Tensor:
    """Concatenate both directions: Schuster and Paliwal 1997; Bahdanau et al. 2015, section 3.2."""
    return torch.cat([onward, backward], dim=-1)


def averaged(onward: Tensor, backward: Tensor) -> Tensor:
    """Return the mean of both directions."""
    return (onward + backward) / 2


class RecurrentStack(nn.Module):
    """A stack of layers; from layer ``residual_from`` (counted from 1) on, inputs are added to outputs.

    x^i = m^i + x^(i-1): Wu et al. 2016, arXiv:1609.08144, equation 6. The sum does not enter the layer's state. Dropout
    applies to the input of a layer, not to its residual connection.
    """

    kind: type[Layers[Any]] = Layers

    def __init__(self, layers: Iterable[nn.Module], dropout: float, residual_from: int | None = None) -> None:
        super().__init__()
        self.layers = self.kind(layers)
        self.dropout = Dropout(dropout)
        self.residual_from = residual_from or math.inf

    def forward(self, x: Tensor, before: Any) -> tuple[Tensor, States]:
        """[N, T, I] -> [N, T, H] and the states after the last position; ``before`` has an argument for each layer."""
        after = []
        for number, (layer, argument) in enumerate(zip(self.layers, before), 1):
            output, state = layer(self.dropout(x) if number > 1 else x, argument)
            x = output + x if number >= self.residual_from else output
            after.append(state)
        return x, tuple(after)


class RecurrentEncoder(RecurrentStack):
    """A stack of unidirectional or bidirectional layers over the source."""

    kind = Stack

    def forward(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
        """[B, S, I] -> states [B, S, H], arbitrary at padding, and the last state of each layer"""
        return super().forward(embedded, itertools.repeat(lengths))
