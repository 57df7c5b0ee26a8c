"""Recurrent encoders and decoders: LSTMs that padding cannot reach.

Shapes: B sentences, N hypotheses, S source positions, T target positions, L layers, E embedding, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.modules.dropout import Dropout
from nmt.trees import RowTree

SATURATING = 1e4  # an input at which the logistic function is exactly 0 or 1, in any number format


def reverse_within_lengths(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sentence of x [B, S, ...] backwards, by its own length; padding stays where it is."""
    positions = torch.arange(x.size(1), device=x.device)[None, :]
    last = lengths[:, None] - 1
    index = torch.where(positions <= last, last - positions, positions)  # [B, S]
    index = index.view(*index.shape, *([1] * (x.dim() - 2))).expand_as(x)
    return x.gather(1, index)


@dataclass
class RecurrentState(RowTree):
    """The state of a stack of LSTM layers."""

    hidden: Tensor  # [N, L, H]
    cell: Tensor  # [N, L, H]

    def by_layer(self) -> tuple[Tensor, Tensor]:
        """[L, N, H] twice: the order of torch."""
        return self.hidden.transpose(0, 1).contiguous(), self.cell.transpose(0, 1).contiguous()


class SentenceLSTM(nn.LSTM):
    """One LSTM layer in one direction, over sentences of different lengths.

    i, f, o = sigma(W x_t + U h_{t-1} + b) each with its own W, U, b; g = tanh(W x_t + U h_{t-1} + b);
    c_t = f * c_{t-1} + i * g; h_t = o * tanh(c_t): Zaremba et al. 2014, arXiv:1409.2329, section 3.1 (no peepholes).
    torch has two b for each, whose sum counts.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """[B, S, E] -> states [B, S, H] (padding may hold anything), last hidden state and cell [B, H]."""
        if x.device.type == "cpu":
            return self._frozen(x, lengths)
        # Packing reads the lengths on the host: one synchronisation a batch.
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, (hidden, cell) = super().forward(packed)
        states, _ = pad_packed_sequence(output, batch_first=True, total_length=x.size(1))
        return states, hidden[0], cell[0]

    def _frozen(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same without packing, whose backward pass is slow on a CPU where lengths are alike (they are sorted).

        One more input says "padding". Its weights close the input gate and open the forget gate all the way, so that at
        padding the cell stays exactly what it was after the last real position.
        """
        gates = torch.zeros(4, self.hidden_size, 1, dtype=x.dtype)  # in torch's order: input, forget, cell, output
        gates[0], gates[1] = -SATURATING, SATURATING
        padding = (torch.arange(x.size(1)) >= lengths[:, None])[:, :, None].to(x.dtype)  # [B, S, 1]
        of_input, of_state, *biases = self.parameters()
        weights = [torch.cat([of_input, gates.flatten(0, 1)], dim=1), of_state, *biases]
        start = x.new_zeros(1, x.size(0), self.hidden_size)
        states, _, cell = torch.lstm(
            torch.cat([x, padding], dim=2), (start, start), weights, True, 1, 0.0, self.training, False, True
        )
        return states, states[torch.arange(len(x)), lengths - 1], cell[0]


class RecurrentEncoder(nn.Module):
    """A stack of LSTM layers that padding cannot reach.

    A bidirectional one gives each direction half of the hidden size and concatenates them, in the states and in the
    last state of every layer, so that a decoder of the same hidden size can start from it.
    """

    def __init__(
        self, embedding_size: int, hidden_size: int, num_layers: int, bidirectional: bool, dropout: float
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        sizes = [embedding_size, *[hidden_size] * (num_layers - 1)]
        self.layers = nn.ModuleList(
            nn.ModuleList(SentenceLSTM(size, hidden_size // directions) for _ in range(directions)) for size in sizes
        )
        self.dropout = Dropout(dropout)

    def forward(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, RecurrentState]:
        """[B, S, E] -> states [B, S, H] (padding may hold anything), and each layer's state after the last position."""
        states, hidden, cells = embedded, [], []
        for number, directions in enumerate(self.layers):
            states = self.dropout(states) if number else states
            states, last, cell = _both_ways(cast("nn.ModuleList", directions), states, lengths)
            hidden.append(last)
            cells.append(cell)
        return states, RecurrentState(torch.stack(hidden, 1), torch.stack(cells, 1))


def _both_ways(directions: nn.ModuleList, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One layer: the second direction, if there is one, reads each sentence from its own end."""
    if len(directions) == 1:
        result: tuple[Tensor, Tensor, Tensor] = directions[0](x, lengths)
        return result
    states, hidden, cell = directions[0](x, lengths)
    back_states, back_hidden, back_cell = directions[1](reverse_within_lengths(x, lengths), lengths)
    return (
        torch.cat([states, reverse_within_lengths(back_states, lengths)], dim=2),
        torch.cat([hidden, back_hidden], dim=1),
        torch.cat([cell, back_cell], dim=1),
    )


class RecurrentDecoder(nn.Module):
    """A stack of LSTM layers over the target; a whole sequence at once, or one position."""

    def __init__(self, embedding_size: int, hidden_size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            embedding_size, hidden_size, num_layers, batch_first=True, dropout=dropout if num_layers > 1 else 0.0
        )

    def forward(self, embedded: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """[N, T, E] -> [N, T, H], and the state after the last position (padding included)."""
        output, (hidden, cell) = self.lstm(embedded, state.by_layer())
        return output, RecurrentState(hidden.transpose(0, 1), cell.transpose(0, 1))
