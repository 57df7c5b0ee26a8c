"""Fast-forward connections between recurrent layers: Zhou et al. 2016, arXiv:1606.04199, section 3.1.

An LSTM layer is seen as two blocks: f_t = W x_t without recurrence, and the rest, which makes h_t of f_t and h_{t-1}. The
next layer reads [Half(f_t), h_t], so that half of f reaches the top without ever passing a non-linearity or a recurrence.
Shapes: N rows, T positions, I inputs, H hidden size.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.models.recurrent.layers import LSTMLayer, read


class FastForward(nn.Module):
    """What a layer hands on beside its states. f_t has 4 H numbers, one for each gate."""

    def __init__(self, layer: LSTMLayer, dropout: float) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = Dropout(dropout)
        self.size = 3 * layer.hidden_size  # of what the next layer reads

    def whole(self, x: Tensor) -> Tensor:
        """f of the layer's input: [N, T, I] -> [N, T, 4H]"""
        return self.layer.of_input(x)

    def passed_on(self, x: Tensor, states: Tensor) -> Tensor:
        """[Half(f), Dr(h)] of the layer's input [N, T, I] and its states [N, T, H]: [N, T, 3H]"""
        half = self.layer.of_input(x, 2 * self.layer.hidden_size)
        return torch.cat([half, self.dropout(states)], dim=-1)


class FastForwardColumn(nn.Module):
    """A stack over the source whose direction changes with every layer."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, dropout: float, backwards: bool) -> None:
        super().__init__()
        inputs = [input_size, *[3 * hidden_size] * (num_layers - 1)]
        self.layers = nn.ModuleList(FastForward(LSTMLayer(width, hidden_size), dropout) for width in inputs)
        self.backwards = backwards
        self.size = 5 * hidden_size

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[B, S, I] -> [h, f] of the top layer, [B, S, 5H] (padding may hold anything)."""
        for number, layer in enumerate(cast("list[FastForward]", list(self.layers))):
            given = x
            states, _ = read(layer.layer, given, lengths, backwards=self.backwards == (number % 2 == 0))
            x = layer.passed_on(given, states)
        return torch.cat([states, layer.whole(given)], dim=-1)
