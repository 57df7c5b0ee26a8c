"""What a stack of layers reads: pieces and where they stand. Shapes: B sentences, N rows, T positions, D width."""

from __future__ import annotations

from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.positions import Positions


class InputLayer(nn.Module):
    """Dropout(embedding + position): sections 3.4, 3.5 and 5.4."""

    def __init__(self, embedding: nn.Module, positions: Positions, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, D]"""
        embedded: Tensor = self.embedding(ids)
        dropped: Tensor = self.dropout(embedded + self.positions.first(ids.size(1)))
        return dropped

    def at(self, tokens: Tensor, positions: Tensor, bound: int) -> Tensor:
        """One token a row, [N] at positions [N], all below ``bound`` -> [N, D]"""
        embedded: Tensor = self.embedding(tokens)
        dropped: Tensor = self.dropout(embedded + self.positions.at(positions, bound))
        return dropped
