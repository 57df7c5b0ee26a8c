"""Multi-head attention: Vaswani et al. 2017, section 3.2.

Shapes: B sentences, K beam, N = B*K hypotheses, S keys, T queries, D model width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.modules.dropout import Dropout
from nmt.trees import RowTree


@dataclass(frozen=True)
class HeadSizes:
    """The sizes of an attention; key and value widths are free of D / H."""

    d_model: int
    num_heads: int
    d_k: int
    d_v: int

    @property
    def keys(self) -> int:
        return self.num_heads * self.d_k

    @property
    def values(self) -> int:
        return self.num_heads * self.d_v


class ScaledDotProduct(nn.Module):
    """softmax(Q K^T / sqrt(d_k)) V: equation 1.

    On the CPU it is written out: at the length of sentences batched products are faster than the fused kernel, most of
    all in the backward pass. Elsewhere the fused kernel runs, unless the weights are asked for.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, record: list[Tensor] | None
    ) -> Tensor:
        """queries [B, H, T, d_k], keys [B, H, S, d_k], values [B, H, S, d_v] -> [B, H, T, d_v]

        ``bias`` is added to the scores [B, H, T, S] (-inf forbids); ``record`` receives the weights.
        """
        if queries.device.type != "cpu" and record is None:
            dropout = self.dropout.p if self.training else 0.0
            mask = None if bias is None else bias.to(queries.dtype)
            return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout)
        scores = (queries * queries.size(-1) ** -0.5) @ keys.transpose(-1, -2)
        weights = torch.softmax(scores if bias is None else scores + bias, dim=-1)
        if record is not None:
            record.append(weights)
        dropped: Tensor = self.dropout(weights)
        return dropped @ values


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, H*d] -> [B, H, T, d]"""
    return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, T, d] -> [B, T, H*d]"""
    return x.transpose(1, 2).flatten(2)


@dataclass
class KeyValueCache(RowTree):
    """Keys and values of the positions decoded so far, in tensors that grow by doubling."""

    keys: Tensor  # [N, H, capacity, d_k]
    values: Tensor  # [N, H, capacity, d_v]
    length: int = 0  # columns in use; no row's position is beyond

    def rows(self, index: Tensor) -> KeyValueCache:
        return replace(self, keys=self._rows(self.keys, index), values=self._rows(self.values, index))

    def _rows(self, cache: Tensor, index: Tensor) -> Tensor:
        # Only the columns in use are copied; the capacity stays.
        kept = cache.new_zeros(index.size(0), *cache.shape[1:])
        kept[:, :, : self.length] = cache[:, :, : self.length].index_select(0, index)
        return kept

    def append(self, keys: Tensor, values: Tensor, positions: Tensor) -> KeyValueCache:
        """Write keys [N, H, 1, d_k] and values at each row's position [N]. The old cache is consumed."""
        grown = self._with_room()
        every = torch.arange(positions.size(0), device=positions.device)
        grown.keys[every, :, positions] = keys[:, :, 0]
        grown.values[every, :, positions] = values[:, :, 0]
        return replace(grown, length=self.length + 1)

    def _with_room(self) -> KeyValueCache:
        capacity = self.keys.size(2)
        if self.length < capacity:
            return self
        grown = (0, 0, 0, max(capacity, 16))
        return replace(self, keys=F.pad(self.keys, grown), values=F.pad(self.values, grown))

    def filled(self) -> tuple[Tensor, Tensor]:
        """[N, H, length, d_k] and [N, H, length, d_v]"""
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class SelfAttention(nn.Module):
    """Queries, keys and values from the same sequence, projected by one matrix.

    The rows of ``projection`` are W^Q, W^K and W^V one after the other, each by head.
    """

    def __init__(self, sizes: HeadSizes, dropout: float, bias: bool) -> None:
        super().__init__()
        self.sizes = sizes
        self.parts = (sizes.keys, sizes.keys, sizes.values)
        self.projection = nn.Linear(sizes.d_model, sum(self.parts), bias=bias)
        self.output = nn.Linear(sizes.values, sizes.d_model, bias=bias)
        self.attend = ScaledDotProduct(dropout)
        _initialise(self.projection, self.parts)
        nn.init.xavier_uniform_(self.output.weight)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, D] -> queries, keys, values [B, H, T, d]"""
        queries, keys, values = self.projection(x).split(self.parts, dim=-1)
        heads = self.sizes.num_heads
        return split_heads(queries, heads), split_heads(keys, heads), split_heads(values, heads)

    def forward(self, x: Tensor, bias: Tensor, record: list[Tensor] | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]; ``bias`` broadcasts to [B, H, T, T]."""
        queries, keys, values = self.project(x)
        attended: Tensor = self.output(merge_heads(self.attend(queries, keys, values, bias, record)))
        return attended

    def empty_cache(self, rows: int, capacity: int, like: Tensor) -> KeyValueCache:
        """A cache for ``rows`` hypotheses, in the type and on the device of ``like``.

        Zeros: a forbidden column weighs nothing, but zero times a stray NaN would still be NaN.
        """
        heads, d_k, d_v = self.sizes.num_heads, self.sizes.d_k, self.sizes.d_v
        return KeyValueCache(like.new_zeros(rows, heads, capacity, d_k), like.new_zeros(rows, heads, capacity, d_v))

    def step(self, x: Tensor, cache: KeyValueCache, positions: Tensor, bias: Tensor) -> tuple[Tensor, KeyValueCache]:
        """One position: x [N, 1, D], ``bias`` [N, 1, 1, length] forbids what a row has not written yet."""
        queries, keys, values = self.project(x)
        cache = cache.append(keys, values, positions)
        attended: Tensor = self.output(merge_heads(self.attend(queries, *cache.filled(), bias, None)))
        return attended, cache


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the memory."""

    def __init__(self, sizes: HeadSizes, dropout: float, bias: bool) -> None:
        super().__init__()
        self.sizes = sizes
        self.parts = (sizes.keys, sizes.values)
        self.query = nn.Linear(sizes.d_model, sizes.keys, bias=bias)
        self.memory = nn.Linear(sizes.d_model, sum(self.parts), bias=bias)  # rows: W^K, then W^V
        self.output = nn.Linear(sizes.values, sizes.d_model, bias=bias)
        self.attend = ScaledDotProduct(dropout)
        _initialise(self.query, (sizes.keys,))
        _initialise(self.memory, self.parts)
        nn.init.xavier_uniform_(self.output.weight)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> keys [B, H, S, d_k], values [B, H, S, d_v]: once for all queries."""
        keys, values = self.memory(memory).split(self.parts, dim=-1)
        return split_heads(keys, self.sizes.num_heads), split_heads(values, self.sizes.num_heads)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, bias: Tensor, record: list[Tensor] | None = None
    ) -> Tensor:
        """x [B, T, D], or [N, 1, D]: the K hypotheses of a sentence are K queries, so the memory keeps its B rows."""
        queries = self.query(x).view(keys.size(0), -1, self.sizes.keys)  # [B, T or K, H*d_k]
        attended = self.attend(split_heads(queries, self.sizes.num_heads), keys, values, bias, record)
        projected: Tensor = self.output(merge_heads(attended))
        return projected.view_as(x)


def _initialise(linear: nn.Linear, parts: tuple[int, ...]) -> None:
    """Xavier for each part of a joint projection, smaller by sqrt(2) so that early attention is almost even."""
    for part in torch.split(linear.weight.detach(), list(parts)):
        nn.init.xavier_uniform_(part, gain=2**-0.5)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
