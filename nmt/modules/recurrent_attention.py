"""Attention of a recurrent decoder over the encoder's states: one head, one layer.

Every kind projects the states once (``project``) and then answers any number of queries. Shapes: B sentences,
S source positions, T queries (target positions, or the K hypotheses of a sentence), H hidden size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class RecurrentAttention(nn.Module, ABC):
    """Queries to contexts."""

    context_size: int

    @abstractmethod
    def project(self, states: Tensor) -> Tensor:
        """[B, S, H] -> what the scores need of the states, computed once."""

    @abstractmethod
    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        """queries [B, T, H], bias [B, 1, S] (-inf at padding) -> contexts [B, T, context_size], weights [B, T, S]."""


class DotAttention(RecurrentAttention):
    """score(h_t, s_i) = h_t . s_i: Luong et al. 2015, equation 8."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.context_size = hidden_size

    def project(self, states: Tensor) -> Tensor:
        return states

    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        weights = torch.softmax(queries @ keys.transpose(1, 2) + bias, dim=-1)
        return weights @ states, weights


class AdditiveAttention(RecurrentAttention):
    """score(h_t, s_i) = v . tanh(W h_t + U s_i): Bahdanau et al. 2015, section A.1.2."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.context_size = hidden_size
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def project(self, states: Tensor) -> Tensor:
        keys: Tensor = self.key(states)
        return keys

    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        mixed = torch.tanh(self.query(queries)[:, :, None] + keys[:, None])  # [B, T, S, H]
        weights = torch.softmax(self.score(mixed).squeeze(-1) + bias, dim=-1)
        return weights @ states, weights


class NoAttention(RecurrentAttention):
    """The decoder knows the source only through the state that it starts from."""

    context_size = 0

    def project(self, states: Tensor) -> Tensor:
        return states[:, :, :0]

    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        return queries[:, :, :0], None
