"""Embeddings of pieces, and sharing a module without owning its parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Embedding(nn.Module):
    """Ids to vectors times ``scale``. [...] -> [..., D]

    Vectors start at N(0, 1 / D): scaled by sqrt(D) they have unit variance beside the positions, and the same matrix as
    an output layer (Vaswani et al. 2017, section 3.4) gives scores of unit variance.
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
        vectors: Tensor = self.table(ids)
        return vectors if self.scale == 1.0 else vectors * self.scale


class Borrowed(nn.Module):
    """Another module under a second name. Its parameters belong to the owner alone: a saved model holds them once."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self._owner = (owner,)  # a tuple, so that torch does not register it as a child

    @property
    def module(self) -> nn.Module:
        return self._owner[0]

    def forward(self, *arguments: Any) -> Any:
        return self._owner[0](*arguments)
