"""Recurrent decoders with attention: what they start from, where the context goes, and what the output layer sees.

Shapes: B sentences, K beam, N = B*K hypotheses (K = 1 in training), S source positions, T target positions, E embedding,
P parts of a state, H hidden size, C context, Z summary, D width of the readout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.recurrent_attention import RecurrentAttention
from nmt.models.recurrent.attentive_recurrent import Attended, DecoderStack, StackState
from nmt.models.recurrent.layers import RecurrentDecoder, RecurrentLayer, States


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


class AttentiveDecoder(DecoderStack):
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
        self.stack, self.attention, self.readout = stack, attention, readout
        self.dropout = Dropout(dropout)
        self.reads_embedding, self.reads_context = reads_embedding, reads_context

    def recurrent(self) -> Iterable[RecurrentLayer]:
        return self.stack.layers

    def attend(self, queries: Tensor, source: Attended) -> tuple[Tensor, Tensor | None]:
        """[N, T, H] -> contexts [N, T, C], weights [B, N/B * T, S]: the K hypotheses of a sentence are K queries."""
        sentences = len(source.states)
        asking = queries if len(queries) == sentences else queries.view(sentences, -1, queries.size(-1))
        contexts, weights = self.attention(asking, source.keys, source.states, source.bias)
        return contexts.view(*queries.shape[:2], -1), weights

    def read_out(self, context: Tensor, state: Tensor, embedded: Tensor, source: Attended) -> Tensor:
        """All of [N, T, ...] -> [N, T, D]"""
        parts = [context, state] if self.reads_context else [state]
        if self.reads_embedding:
            parts.append(embedded)
        return self.dropout(self.readout(beside(source.summary, *parts)))


class ContextAfter(AttentiveDecoder):
    """Attention follows the recurrence and never feeds back: a whole target in one go."""

    def forward(
        self, embedded: Tensor, source: Attended, state: StackState
    ) -> tuple[Tensor, Tensor | None, StackState]:
        states, layers = self.stack(beside(source.summary, embedded), state.layers)
        contexts, weights = self.attend(states, source)
        return self.read_out(contexts, states, embedded, source), weights, StackState(layers)


class StepwiseDecoder(AttentiveDecoder):
    """What comes back as input makes every step wait for the one before."""

    @abstractmethod
    def step(self, embedded: Tensor, source: Attended, state: StackState) -> tuple[Tensor, Tensor | None, StackState]:
        """One position: [N, 1, E]"""

    def forward(
        self, embedded: Tensor, source: Attended, state: StackState
    ) -> tuple[Tensor, Tensor | None, StackState]:
        hidden, weights = [], []
        for x in torch.split(embedded, 1, dim=1):
            one, weight, state = self.step(x, source, state)
            hidden.append(one)
            weights.append(weight)
        maps = None if weights[0] is None else torch.cat([weight for weight in weights if weight is not None], dim=1)
        return torch.cat(hidden, dim=1), maps, state


class ContextFirst(StepwiseDecoder):
    """The state before a step asks, and the context is part of the step's input: Bahdanau et al. 2015, section 3.1."""

    def step(self, embedded: Tensor, source: Attended, state: StackState) -> tuple[Tensor, Tensor | None, StackState]:
        contexts, weights = self.attend(state.layers[-1][:, :1], source)
        states, layers = self.stack(beside(source.summary, embedded, contexts), state.layers)
        return self.read_out(contexts, states, embedded, source), weights, StackState(layers)


class ReadoutFed(StepwiseDecoder):
    """The readout comes back as input of the next step, "input feeding": Luong et al. 2015, section 3.3."""

    def start(self, layers: States) -> StackState:
        return StackState(layers, layers[0].new_zeros(layers[0].size(0), self.readout.size))

    def step(self, embedded: Tensor, source: Attended, state: StackState) -> tuple[Tensor, Tensor | None, StackState]:
        assert state.fed is not None
        states, layers = self.stack(beside(source.summary, embedded, state.fed[:, None]), state.layers)
        contexts, weights = self.attend(states, source)
        hidden = self.read_out(contexts, states, embedded, source)
        return hidden, weights, StackState(layers, hidden[:, 0])


def beside(summary: Tensor | None, *parts: Tensor) -> Tensor:
    """[N, T, ...] each -> side by side, the summary [B, Z] of its sentence at every position among them."""
    if summary is not None:
        rows, positions = parts[0].shape[:2]
        summary = summary.repeat_interleave(rows // summary.size(0), dim=0)
        parts = (*parts, summary[:, None].expand(-1, positions, -1))
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
