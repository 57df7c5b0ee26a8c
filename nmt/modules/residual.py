"""Residual connections around a sublayer, with the norm after it (the paper) or before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.modules.dropout import Dropout
from nmt.modules.plain import Function, plain

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module, ABC):
    """Wraps any sublayer that keeps the shape [..., D]."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    @abstractmethod
    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor: ...

    @abstractmethod
    def halves(self) -> tuple[Function, Function]:
        """In evaluation: what the sublayer gets of x, and the result of x and what the sublayer says."""


class PostNorm(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))): Vaswani et al. 2017, sections 3.1 and 5.4."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        normed: Tensor = self.norm(self.dropout.add(x, sublayer(x)))
        return normed

    def halves(self) -> tuple[Function, Function]:
        norm = plain(self.norm)
        return _same, lambda x, y: norm(x + y)


class PreNorm(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))): gradients pass unchanged, so a stack needs a norm at its end."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.dropout.add(x, sublayer(self.norm(x)))

    def halves(self) -> tuple[Function, Function]:
        return plain(self.norm), torch.add


def _same(x: Tensor) -> Tensor:
    return x
