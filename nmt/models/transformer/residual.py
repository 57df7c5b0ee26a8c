"""Residual connections around a sublayer, with the norm after it (the paper) or before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn

from nmt.layers.dropout import Dropout

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module, ABC):
    """Wraps any sublayer that keeps the shape [..., D]."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    @abstractmethod
    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor: ...


class PostNorm(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))): Vaswani et al. 2017, sections 3.1 and 5.4."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        normed: Tensor = self.norm(self.dropout.add(x, sublayer(x)))
        return normed


class PreNorm(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))): gradients pass unchanged, so a stack needs a norm at its end."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.dropout.add(x, sublayer(self.norm(x)))
