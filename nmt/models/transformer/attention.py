"""Multi-head attention: Vaswani et al. 2017, section 3.2.

Shapes: B sentences, K beam, S keys, T queries, D model width, H heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.linear import Linear
from nmt.layers.padding import causal_bias
from nmt.models.transformer.attention_kernels import attended, by_kernel, supports_flat_heads
from nmt.models.transformer.autoregression import (
    INITIAL_CAPACITY,
    Autoregression,
    BeamHistory,
    KeyValueCache,
    LayerCache,
    SourceAttention,
)
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.mask import FlatMask, Mask, Segments, WeightRecord, self_attention_mask, whole_sequence


class Attend(nn.Module, ABC):
    """softmax(scores) V inside the heads, without projections; self-attention and cross-attention contain one.

    A subclass defines ``scores``, and ``mix`` if it does not return weights @ values. Training and decoding call both, so a
    formula is written once. ``forward`` adds the mask to the scores: ``scores`` need not mask anything. In a decoding step,
    T is the beam width K and S counts the cached positions of all K hypotheses; ``mask.positions`` has their positions.
    """

    flat = False  # whether it supports batches without padding (``FlatMask``) in its current mode
    applies_positions = False  # whether scores depend on positions

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    @abstractmethod
    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        """[B, H, T, d_k] and [B, H, S, d_k] -> [B, H, T, S]"""

    def mix(self, weights: Tensor, values: Tensor, mask: Mask) -> Tensor:
        """[B, H, T, S] and [B, H, S, d_v] -> [B, H, T, d_v]"""
        return weights @ values

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        """queries [B, H, T, d_k], keys [B, H, S, d_k], values [B, H, S, d_v] -> [B, H, T, d_v]

        ``record`` receives the weights [B, H, T, S].
        """
        scores = self.scores(queries, keys, mask)
        weights = torch.softmax(scores if mask.bias is None else scores + mask.bias, dim=-1)
        if record is not None:
            record.append(weights)
        return self.mix(self.dropout(weights), values, mask)


class ScaledDotProduct(Attend):
    """softmax(Q K^T / sqrt(d_k)) V: equation 1."""

    fused = True  # fused kernels compute the same formula

    def __init_subclass__(cls, **options: Any) -> None:
        """Disable fused kernels in a subclass that changes the formula."""
        super().__init_subclass__(**options)
        formula = ("scores", "mix", "forward")
        cls.fused = all(getattr(cls, name) is getattr(ScaledDotProduct, name) for name in formula)

    @property
    def flat(self) -> bool:  # type: ignore[override]
        return self.fused and (not self.training or self.dropout.p == 0.0)

    def scale(self, d_k: int) -> float:
        scale: float = d_k**-0.5
        return scale

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        return (queries * self.scale(queries.size(-1))) @ keys.transpose(-1, -2)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        if record is not None or not self.fused:  # a fused kernel returns no weights
            return super().forward(queries, keys, values, mask, record)
        scale, dropout = self.scale(queries.size(-1)), self.dropout.p if self.training else 0.0
        formula = super().forward
        return by_kernel(formula, queries, keys, values, mask, scale=scale, dropout=dropout)


class DotProduct(ScaledDotProduct):
    """softmax(Q K^T) V: without the scale of section 3.2.1."""

    def scale(self, d_k: int) -> float:
        return 1.0


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, H*d] -> [B, H, T, d]"""
    return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, T, d] -> [B, T, H*d]"""
    return x.transpose(1, 2).flatten(2)


class SelfAttention(SourceAttention):
    """Self-attention of the encoder; one matrix projects to queries, keys and values, and ``attend`` combines them.

    The decoder's is its subclass ``CausalSelfAttention``, which adds the causal mask and the key-value cache.
    """

    def __init__(self, sizes: HeadSizes, bias: bool, attend: Attend, rotation: nn.Module | None = None) -> None:
        """``rotation`` rotates queries and keys by their positions."""
        super().__init__()
        self.sizes = sizes
        self.parts = (sizes.keys, sizes.keys, sizes.values)
        self.projection = Linear(sizes.d_model, sum(self.parts), bias=bias)  # rows: W^Q, W^K, then W^V, each by head
        self.output = Linear(sizes.values, sizes.d_model, bias=bias)
        self.attend = attend
        self.rotation = rotation
        self.applies_positions = rotation is not None or attend.applies_positions
        _initialize(self.projection, self.parts)
        nn.init.xavier_uniform_(self.output.weight)

    @property
    def flat(self) -> bool:
        return self.attend.flat and supports_flat_heads(self.sizes.d_k, self.sizes.d_v)

    def flat_mask(self, segments: Segments) -> FlatMask:
        return self_attention_mask(segments)

    def project(self, x: Tensor, mask: Mask) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, D] -> queries, keys, values [B, H, T, d]"""
        queries, keys, values = (
            split_heads(part, self.sizes.num_heads) for part in self.projection(x).split(self.parts, dim=-1)
        )
        if self.rotation is not None:
            queries, keys = self.rotation(queries, mask.positions), self.rotation(keys, mask.positions)
        return queries, keys, values

    def forward(self, x: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        """[B, T, D] -> [B, T, D]"""
        return self.output(merge_heads(self.attend_to(*self.project(x, mask), mask, record)))

    def attend_to(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: WeightRecord) -> Tensor:
        """[B, H, T, d_k], [B, H, T, d_k], [B, H, T, d_v] -> [B, H, T, d_v]"""
        return attended(self.attend, queries, keys, values, mask, record)


class CausalSelfAttention(SelfAttention, Autoregression):
    """The decoder's self-attention, to itself and earlier positions: section 3.2.3.

    Target padding needs no mask: it follows all real positions.
    """

    def causal_mask(self, x: Tensor) -> Mask:
        length = x.size(1)
        return Mask(causal_bias(length, x.dtype, x.device), whole_sequence(length, x.device))

    def flat_mask(self, segments: Segments) -> FlatMask:
        return self_attention_mask(segments, ahead=0)

    def start(self, sentences: int, beam: int, like: Tensor) -> KeyValueCache:
        sizes = (sentences, self.sizes.num_heads, self.sizes.d_k, self.sizes.d_v)
        return KeyValueCache.empty(sizes, beam, INITIAL_CAPACITY, like)

    def step_mask(self, cache: KeyValueCache, history: BeamHistory) -> Mask:
        return history.mask(cache.keys.dtype)

    def step(self, x: Tensor, cache: KeyValueCache, mask: Mask) -> tuple[Tensor, LayerCache]:
        queries, keys, values = self.project(x, mask)
        cache = cache.append(keys, values)
        return self.output(merge_heads(self.attend_to(queries, *cache.filled(), mask, None))), cache


class CrossAttention(nn.Module):
    """Attention with queries from the decoder, keys and values from the encoder output."""

    def __init__(self, sizes: HeadSizes, bias: bool, attend: Attend) -> None:
        super().__init__()
        self.sizes = sizes
        self.parts = (sizes.keys, sizes.values)
        self.query = Linear(sizes.d_model, sizes.keys, bias=bias)
        self.memory = Linear(sizes.d_model, sum(self.parts), bias=bias)  # rows: W^K, then W^V
        self.output = Linear(sizes.values, sizes.d_model, bias=bias)
        self.attend = attend
        _initialize(self.query, (sizes.keys,))
        _initialize(self.memory, self.parts)
        nn.init.xavier_uniform_(self.output.weight)

    @property
    def flat(self) -> bool:
        """Whether it supports batches without padding."""
        return self.attend.flat and supports_flat_heads(self.sizes.d_k, self.sizes.d_v)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> keys [B, H, S, d_k], values [B, H, S, d_v], the same for all queries"""
        keys, values = self.memory(memory).split(self.parts, dim=-1)
        return split_heads(keys, self.sizes.num_heads), split_heads(values, self.sizes.num_heads)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        """[B, T, D] -> [B, T, D]; in a step [B, K, D], since the K hypotheses of a sentence are K queries."""
        queries = split_heads(self.query(x), self.sizes.num_heads)
        return self.output(merge_heads(attended(self.attend, queries, keys, values, mask, record)))


def _initialize(linear: Linear, parts: tuple[int, ...]) -> None:
    """Initialize each part of a joint projection by Xavier with gain sqrt(1/2): early attention is almost uniform."""
    for part in torch.split(linear.weight.detach(), list(parts)):
        nn.init.xavier_uniform_(part, gain=2**-0.5)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
