"""The input of a stack of layers: token embeddings and positions.

Shapes: B sentences, N rows, T positions, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from nmt.devices.kinds import device_of
from nmt.errors import DataError
from nmt.layers.dropout import Dropout
from nmt.layers.sinusoids import Sinusoids


class Embedding(nn.Module):
    """Ids to vectors times ``scale``. [...] -> [..., D]

    Vectors are initialized from N(0, 1 / D): times sqrt(D) they have unit variance, and as an output layer (Vaswani et al.
    2017, section 3.4) the same matrix gives scores of unit variance.
    """

    def __init__(self, vocabulary_size: int, d_model: int, scale: float = 1.0) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary_size, d_model)
        self.scale = scale
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    @property
    def weight(self) -> Tensor:
        return self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        vectors = self.table(ids)
        return vectors if self.scale == 1.0 else vectors * self.scale


class Borrowed(nn.Module):
    """A reference to another module, whose parameters are saved only once, under the owner's name."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self._owner = (owner,)  # a tuple, so that torch does not register it as a child

    def forward(self, *arguments: Any) -> Any:
        return self._owner[0](*arguments)


TABLE_LENGTH = 1024


def sinusoids(positions: Tensor, formula: Sinusoids) -> Tensor:
    """Compute sinusoids of positions: [...] -> [..., D]"""
    exact = device_of(positions).exact
    radians = torch.from_numpy(formula.radians()).to(exact).to(positions.device)
    angles = (positions + formula.offset).to(exact)[..., None] / radians
    if formula.interleaved:
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Positions(nn.Module, ABC):
    """Position vectors, which are added to the embeddings."""

    limit: int | None = None  # maximum sequence length; None: no limit

    def check_length(self, count: int, side: str) -> None:
        """Refuse a sentence of ``count`` tokens that is longer than the limit."""
        if self.limit is not None and count > self.limit:
            raise DataError(
                f"a {side} sentence has {count} tokens, but the model has learned positions for {self.limit}; raise "
                f"model.max_positions, or filter such sentences (--max-length {self.limit - 1} when preprocessing)"
            )

    @abstractmethod
    def at(self, positions: Tensor, bound: int) -> Tensor:
        """[...] -> [..., D]; every position is below ``bound``."""


class SinusoidalPositions(Positions):
    """Fixed sinusoids, for any length."""

    def __init__(self, d_model: int, formula: Sinusoids | None = None) -> None:
        """``formula``: the sinusoids; None: the paper's."""
        super().__init__()
        assert d_model % 2 == 0
        self.formula = formula or Sinusoids(d_model)
        table = sinusoids(torch.arange(TABLE_LENGTH), self.formula).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)
        self.table: Tensor

    def at(self, positions: Tensor, bound: int) -> Tensor:
        if bound <= TABLE_LENGTH:
            return self.table[positions]
        return sinusoids(positions, self.formula).to(self.table.dtype)


class LearnedPositions(Positions):
    """A learned vector for each of the first ``limit`` positions (the paper's Table 3, row E)."""

    not_maps = ("weight",)

    def __init__(self, d_model: int, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.weight = nn.Parameter(torch.empty(limit, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def at(self, positions: Tensor, bound: int) -> Tensor:
        return self.weight[positions]


class NoPositions(Positions):
    """No position vectors: the layers apply positions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("nothing", torch.zeros(1), persistent=False)
        self.nothing: Tensor

    def at(self, positions: Tensor, bound: int) -> Tensor:
        return self.nothing


class InputLayer(nn.Module):
    """Dropout(embedding + position): Vaswani et al. 2017, sections 3.4, 3.5 and 5.4; mBART normalizes the sum."""

    def __init__(
        self, embedding: nn.Module, positions: Positions, dropout: float, norm: nn.Module | None = None
    ) -> None:
        """``norm``: of the sum; None: no norm."""
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.norm = norm or nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, D]"""
        return self.at(ids, torch.arange(ids.size(1), device=ids.device), ids.size(1))

    def at(self, tokens: Tensor, positions: Tensor, bound: int) -> Tensor:
        """Ids [B, T] or [N] at positions [T] or [N], all below ``bound`` -> [B, T, D] or [N, D]"""
        return self.dropout(self.norm(self.embedding(tokens) + self.positions.at(positions, bound)))
