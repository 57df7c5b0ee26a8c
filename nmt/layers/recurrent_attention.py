"""Single-head attention of a recurrent decoder to the encoder output.

``project`` runs once for each batch, ``forward`` for any number of queries.

Shapes: B sentences, S source positions, T queries (target positions, or the K hypotheses of a sentence), H size of a state,
Q of a query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from nmt.layers.linear import at_least_float32


class RecurrentAttention(nn.Module, ABC):
    """An attention from queries to contexts."""

    context_size: int

    def project(self, states: Tensor) -> Tensor:
        """Return the keys of states [B, S, H]; by default the states."""
        return states

    @abstractmethod
    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        """queries [B, T, Q], bias [B, 1, S] (-inf at padding) -> contexts [B, T, context_size], weights [B, T, S]."""


class NoAttention(RecurrentAttention):
    """No attention: the decoder reads the source only through its initial state."""

    context_size = 0

    def project(self, states: Tensor) -> Tensor:
        return states[:, :, :0]

    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        return queries[:, :, :0], None


class ContentAttention(RecurrentAttention):
    """Attention by content: "global" in Luong et al. 2015, section 3.1."""

    def __init__(self, state_size: int) -> None:
        super().__init__()
        self.context_size = state_size

    @abstractmethod
    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[B, T, S]"""

    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        weights = torch.softmax(self.scores(queries, keys) + bias, dim=-1)
        return weights @ states, weights


class DotAttention(ContentAttention):
    """score(h_t, s_i) = h_t . s_i: Luong et al. 2015, equation 8. Queries and states have the same size."""

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(1, 2)


class GeneralAttention(DotAttention):
    """score(h_t, s_i) = h_t . W s_i: Luong et al. 2015, equation 8."""

    def __init__(self, query_size: int, state_size: int) -> None:
        super().__init__(state_size)
        self.key = nn.Linear(state_size, query_size, bias=False)

    def project(self, states: Tensor) -> Tensor:
        return self.key(states)


class AdditiveAttention(ContentAttention):
    """score(h_t, s_i) = v . tanh(W h_t + U s_i): Bahdanau et al. 2015, section A.1.2."""

    def __init__(self, query_size: int, state_size: int) -> None:
        super().__init__(state_size)
        self.query = nn.Linear(query_size, query_size, bias=False)
        self.key = nn.Linear(state_size, query_size)
        self.score = nn.Linear(query_size, 1, bias=False)

    def project(self, states: Tensor) -> Tensor:
        return self.key(states)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        mixed = torch.tanh(self.query(queries)[:, :, None] + keys[:, None])  # [B, T, S, Q]
        return self.score(mixed).squeeze(-1)


class ProductAttention(ContentAttention):
    """score(x, y) = sum_d V_d tanh(x U)_d tanh(y W)_d: Shazeer et al. 2017, arXiv:1701.06538, appendix G.

    Almost as expressive as additive attention, with one matrix product for all positions.
    """

    def __init__(self, query_size: int, state_size: int) -> None:
        super().__init__(state_size)
        self.query = nn.Linear(query_size, query_size, bias=False)
        self.key = nn.Linear(state_size, query_size, bias=False)
        self.scale = nn.Parameter(torch.ones(query_size))

    def project(self, states: Tensor) -> Tensor:
        return torch.tanh(self.key(states))

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return (torch.tanh(self.query(queries)) * self.scale) @ keys.transpose(1, 2)


class PredictedWindow(RecurrentAttention):
    """Attention within D positions of a predicted center, "local-p": Luong et al. 2015, section 3.2, equations 9 and 10.

    p_t = S sigma(v . tanh(W h_t)), with sentence length S; the content weights within [p_t - D, p_t + D] are multiplied by
    exp(-(s - p_t)^2 / (2 (D/2)^2)). They then sum to less than 1; the returned weights are divided by their sum.
    """

    def __init__(self, content: ContentAttention, query_size: int, window: int) -> None:
        super().__init__()
        self.content = content
        self.context_size = content.context_size
        self.window = window
        self.hidden = nn.Linear(query_size, query_size, bias=False)
        self.centre = nn.Linear(query_size, 1, bias=False)

    def project(self, states: Tensor) -> Tensor:
        return self.content.project(states)

    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        lengths = (bias == 0).sum(-1, keepdim=True)  # [B, 1, 1]
        centres = self.centre(torch.tanh(self.hidden(queries)))  # [B, T, 1]
        centres = lengths * torch.sigmoid(at_least_float32(centres))  # 16 bits cannot distinguish large positions
        distances = torch.arange(states.size(1), device=states.device) - centres  # [B, T, S]
        scores = (self.content.scores(queries, keys) + bias).masked_fill(distances.abs() > self.window, -torch.inf)
        weights = torch.softmax(scores, dim=-1) * torch.exp(-2 * (distances / self.window) ** 2)
        return weights.to(states.dtype) @ states, weights / weights.sum(-1, keepdim=True)
