"""The layers of the Transformer: Vaswani et al. 2017, section 3.1 and figure 1.

Shapes: B sentences, N hypotheses, S source positions, T target positions, D model width, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from nmt.modules.attention import CrossAttention, HeadSizes, KeyValueCache, SelfAttention
from nmt.modules.dropout import Dropout
from nmt.modules.feed_forward import FeedForward
from nmt.modules.positions import LearnedPositions, SinusoidalPositions
from nmt.modules.residual import Residual

Record = dict[str, list[Tensor]]  # attention weights by kind; a kind that is not asked for is absent


@dataclass(frozen=True)
class LayerShape:
    """What all layers of a model have in common."""

    heads: HeadSizes
    d_ff: int
    residual: Callable[[int, float], Residual]
    final_norm: bool  # a stack of pre-norm layers needs a norm at its end
    dropout: float
    attention_dropout: float
    activation_dropout: float
    attention_bias: bool


class InputLayer(nn.Module):
    """Dropout(embedding + position): sections 3.4, 3.5 and 5.4."""

    def __init__(self, embedding: nn.Module, positions: SinusoidalPositions | LearnedPositions, dropout: float) -> None:
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


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = SelfAttention(shape.heads, shape.attention_dropout, shape.attention_bias)
        self.self_residual = shape.residual(shape.heads.d_model, shape.dropout)
        self.feed_forward = FeedForward(shape.heads.d_model, shape.d_ff, shape.activation_dropout)
        self.feed_forward_residual = shape.residual(shape.heads.d_model, shape.dropout)

    def forward(self, x: Tensor, bias: Tensor, record: Record) -> Tensor:
        """[B, S, D] -> [B, S, D]; ``bias`` [B, 1, 1, S] hides padding."""
        x = self.self_residual(x, lambda y: self.self_attention(y, bias, record.get("encoder")))
        x = self.feed_forward_residual(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Self-attention over what is written so far, attention over the memory, and a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = SelfAttention(shape.heads, shape.attention_dropout, shape.attention_bias)
        self.self_residual = shape.residual(shape.heads.d_model, shape.dropout)
        self.cross_attention = CrossAttention(shape.heads, shape.attention_dropout, shape.attention_bias)
        self.cross_residual = shape.residual(shape.heads.d_model, shape.dropout)
        self.feed_forward = FeedForward(shape.heads.d_model, shape.d_ff, shape.activation_dropout)
        self.feed_forward_residual = shape.residual(shape.heads.d_model, shape.dropout)

    def forward(self, x: Tensor, causal: Tensor, memory: tuple[Tensor, Tensor], bias: Tensor, record: Record) -> Tensor:
        """All positions at once: [B, T, D] -> [B, T, D]

        ``causal`` [T, T] hides later positions, ``memory`` holds keys and values [B, H, S, d], ``bias`` [B, 1, 1, S]
        hides the source's padding. The target's own padding stands after every real position, so nothing sees it.
        """
        x = self.self_residual(x, lambda y: self.self_attention(y, causal, record.get("decoder")))
        return self._read_memory(x, memory, bias, record)

    def step(
        self,
        x: Tensor,
        cache: KeyValueCache,
        positions: Tensor,
        unwritten: Tensor,
        memory: tuple[Tensor, Tensor],
        bias: Tensor,
        record: Record,
    ) -> tuple[Tensor, KeyValueCache]:
        """One position: [N, 1, D] -> [N, 1, D]; ``unwritten`` [N, 1, 1, length] hides the cache's unused columns."""
        after: list[KeyValueCache] = []

        def attend(y: Tensor) -> Tensor:
            attended, written = self.self_attention.step(y, cache, positions, unwritten)
            after.append(written)
            return attended

        x = self.self_residual(x, attend)
        return self._read_memory(x, memory, bias, record), after[0]

    def _read_memory(self, x: Tensor, memory: tuple[Tensor, Tensor], bias: Tensor, record: Record) -> Tensor:
        x = self.cross_residual(x, lambda y: self.cross_attention(y, *memory, bias, record.get("cross")))
        x = self.feed_forward_residual(x, self.feed_forward)
        return x
