"""Recurrent decoders with attention: what they start from, where the context goes, and what the output layer sees.

Shapes: B sentences, K beam, N = B*K hypotheses (K = 1 in training), S source positions, T target positions, E embedding,
P parts of a state, H hidden size, C context, Z summary, D width of the readout.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.recurrent_attention import RecurrentAttention
from nmt.models.recurrent.attentive_recurrent import Attended
from nmt.models.recurrent.layers import RecurrentDecoder, States
from nmt.trees import RowTree


@dataclass
class Position(RowTree):
    """Where a decoder is: N rows."""

    layers: States
    fed: Tensor | None = None  # [N, D] the readout of the step before, if it comes back as input


class Readout(nn.Module):
    """What the output layer sees of context, state and more, put side by side: just that."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x


class TanhReadout(Readout):
    """tanh(W [c; h]): Luong et al. 2015, equation 5."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(size)
        self.linear = nn.Linear(input_size, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class MaxoutReadout(Readout):
    """The larger of each pair of 2D linear maps: Bahdanau et al. 2015, section A.2.2."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(size)
        self.linear = nn.Linear(input_size, 2 * size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pairs: Tensor = self.linear(x)
        return pairs.view(*pairs.shape[:-1], self.size, 2).amax(-1)


class AttentiveDecoder(nn.Module, ABC):
    """A recurrent stack, an attention and a readout."""

    def __init__(
        self,
        stack: RecurrentDecoder,
        attention: RecurrentAttention,
        readout: Readout,
        dropout: float,
        reads_embedding: bool = False,
        reads_context: bool = True,
    ) -> None:
        """What the readout sees beside the state: the last piece's embedding, the context."""
        super().__init__()
        self.stack = stack
        self.attention = attention
        self.readout = readout
        self.dropout = Dropout(dropout)
        self.reads_embedding = reads_embedding
        self.reads_context = reads_context

    def first(self, layers: States) -> Position:
        """The position before the first step."""
        return Position(layers)

    @abstractmethod
    def forward(self, embedded: Tensor, source: Attended, position: Position) -> tuple[Tensor, Tensor | None]:
        """Teacher forcing: embedded [B, T, E] -> readouts [B, T, D], weights [B, T, S]."""

    @abstractmethod
    def step(self, embedded: Tensor, source: Attended, position: Position) -> tuple[Tensor, Tensor | None, Position]:
        """One position of N hypotheses: embedded [B, K, E] -> readouts [B, K, D], weights [B, K, S], and the next."""

    def _recur(self, x: Tensor, layers: States) -> tuple[Tensor, States]:
        """One position of [B, K, I] -> [B, K, H]."""
        states, after = self.stack(x.flatten(0, 1)[:, None], layers)
        return states.view(*x.shape[:2], -1), after

    def _read_out(self, context: Tensor, state: Tensor, embedded: Tensor, source: Attended) -> Tensor:
        """All of [B, T, ...] -> [B, T, D]"""
        parts = [context, state] if self.reads_context else [state]
        if self.reads_embedding:
            parts.append(embedded)
        return self.dropout(self.readout(beside(source.summary, *parts)))


class ContextAfter(AttentiveDecoder):
    """Attention follows the recurrence and never feeds back: a whole target in one go."""

    def forward(self, embedded: Tensor, source: Attended, position: Position) -> tuple[Tensor, Tensor | None]:
        states, _ = self.stack(beside(source.summary, embedded), position.layers)
        return self._attend(states, embedded, source)

    def step(self, embedded: Tensor, source: Attended, position: Position) -> tuple[Tensor, Tensor | None, Position]:
        states, layers = self._recur(beside(source.summary, embedded), position.layers)
        return *self._attend(states, embedded, source), Position(layers)

    def _attend(self, states: Tensor, embedded: Tensor, source: Attended) -> tuple[Tensor, Tensor | None]:
        contexts, weights = self.attention(states, source.keys, source.states, source.bias)
        return self._read_out(contexts, states, embedded, source), weights


class StepwiseDecoder(AttentiveDecoder):
    """What comes back as input makes every step wait for the one before."""

    def forward(self, embedded: Tensor, source: Attended, position: Position) -> tuple[Tensor, Tensor | None]:
        hidden, weights = [], []
        for x in embedded.unbind(1):
            one, weight, position = self.step(x[:, None], source, position)
            hidden.append(one)
            weights.append(weight)
        maps = None if weights[0] is None else torch.cat([weight for weight in weights if weight is not None], dim=1)
        return torch.cat(hidden, dim=1), maps


class ContextFirst(StepwiseDecoder):
    """The state before a step asks, and the context is part of the step's input: Bahdanau et al. 2015, section 3.1."""

    def step(self, embedded: Tensor, source: Attended, position: Position) -> tuple[Tensor, Tensor | None, Position]:
        queries = position.layers[-1][:, 0].view(*embedded.shape[:2], -1)  # [B, K, H]
        contexts, weights = self.attention(queries, source.keys, source.states, source.bias)
        states, layers = self._recur(beside(source.summary, embedded, contexts), position.layers)
        return self._read_out(contexts, states, embedded, source), weights, Position(layers)


class ReadoutFed(StepwiseDecoder):
    """The readout comes back as input of the next step, "input feeding": Luong et al. 2015, section 3.3."""

    def first(self, layers: States) -> Position:
        return Position(layers, layers[0].new_zeros(layers[0].size(0), self.readout.size))

    def step(self, embedded: Tensor, source: Attended, position: Position) -> tuple[Tensor, Tensor | None, Position]:
        assert position.fed is not None
        fed = position.fed.view(*embedded.shape[:2], -1)  # [B, K, D]
        states, layers = self._recur(beside(source.summary, embedded, fed), position.layers)
        contexts, weights = self.attention(states, source.keys, source.states, source.bias)
        hidden = self._read_out(contexts, states, embedded, source)
        return hidden, weights, Position(layers, hidden.flatten(0, 1))


def beside(summary: Tensor | None, *parts: Tensor) -> Tensor:
    """[B, T, ...] each -> side by side, the summary [B, Z] at every position among them."""
    if summary is not None:
        parts = (*parts, summary[:, None].expand(-1, parts[0].size(1), -1))
    return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


# What a decoder starts from: the encoder's last states by layer [B, P, H] -> the decoder's first states by layer [B, P, H].


class ZeroBridge(nn.Module):
    """The decoder starts from nothing: the source comes in through attention alone."""

    def __init__(self, num_layers: int, parts: int, size: int) -> None:
        super().__init__()
        self.num_layers, self.parts, self.size = num_layers, parts, size

    def forward(self, last: States) -> States:
        return tuple(last[-1].new_zeros(last[-1].size(0), self.parts, self.size) for _ in range(self.num_layers))


class DenseBridge(nn.Module):
    """tanh(W h) of the encoder's last state: Bahdanau et al. 2015, section A.2.2, where h is the backward direction's.

    ``first``: where that part of h begins. Every layer, and every part of its state, has a W of its own.
    """

    def __init__(self, encoder_size: int, num_layers: int, parts: int, size: int, first: int = 0) -> None:
        super().__init__()
        self.num_layers, self.parts, self.size, self.first = num_layers, parts, size, first
        self.linear = nn.Linear(encoder_size - first, num_layers * parts * size, bias=False)

    def forward(self, last: States) -> States:
        h = last[-1][:, 0, self.first :]
        started = torch.tanh(self.linear(h)).view(-1, self.num_layers, self.parts, self.size)
        return tuple(started.unbind(1))
