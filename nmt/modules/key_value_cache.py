"""Keys and values of decoded positions: all of them, or the most recent ones.

Hypotheses change their slots of the beam from step to step. What a slot has written stays where it is: every hypothesis
looks at what all slots of its sentence have written, and its lineage says which of that is its own past. So nothing is
copied, and the products have as many rows as the beam is wide. On a CPU keys stand as columns, as products with queries want
them; the kernels of a GPU want rows.

Shapes: B sentences, K beam, N = B*K hypotheses, H heads, S steps in use.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.modules.autoregression import INITIAL_CAPACITY, Past

Self = TypeVar("Self", bound="KeyValueCache")


@dataclass
class KeyValueCache(Past):
    """Keys and values of all steps so far, in tensors that grow by doubling."""

    keys: Tensor  # [B, H, d_k, capacity, K], or as rows [B, H, capacity, K, d_k]
    values: Tensor  # [B, H, capacity, K, d_v]
    length: int = 0

    @classmethod
    def empty(cls: type[Self], sizes: tuple[int, int, int, int], beam: int, capacity: int, like: Tensor) -> Self:
        """For ``sizes`` = B, H, d_k, d_v."""
        sentences, heads, d_k, d_v = sizes
        key = (d_k, capacity, beam) if cls.as_columns(like) else (capacity, beam, d_k)
        return cls(like.new_empty(sentences, heads, *key), like.new_empty(sentences, heads, capacity, beam, d_v))

    @staticmethod
    def as_columns(keys: Tensor) -> bool:
        """How keys stand where they are."""
        return keys.device.type == "cpu"

    def rows(self: Self, index: Tensor) -> Self:
        """Of hypotheses [N'] that only change their slots, nothing moves; of sentences that leave, nothing is kept."""
        sentences, beam = self.values.size(0), self.values.size(3)
        if index.numel() == sentences * beam:
            return self
        staying = index[::beam] // beam
        return self._with(self.keys.index_select(0, staying), self.values.index_select(0, staying), self.length)

    def _with(self: Self, keys: Tensor, values: Tensor, length: int) -> Self:
        """As ``dataclasses.replace``, which every layer would wait for in every step."""
        return type(self)(keys, values, length)

    def columns(self, length: int) -> int:
        """How many columns hold the first ``length`` steps."""
        return length

    def column(self, step: int) -> int:
        """Where a step stands."""
        return step

    def append(self: Self, keys: Tensor, values: Tensor) -> Self:
        """Write keys [B, H, K, d_k] and values of the next step. The old cache is consumed."""
        grown, column = self._with_room(), self.column(self.length)
        if self.as_columns(keys):
            grown.keys[:, :, :, column] = keys.transpose(2, 3)
        else:
            grown.keys[:, :, column] = keys
        grown.values[:, :, column] = values
        return self._with(grown.keys, grown.values, self.length + 1)

    def _with_room(self: Self) -> Self:
        capacity = self.values.size(2)
        if self.columns(self.length + 1) <= capacity:
            return self
        return self._padded(self.columns(capacity + max(capacity, INITIAL_CAPACITY)) - capacity)

    def _padded(self: Self, more: int) -> Self:
        rows = (0, 0, 0, 0, 0, more)
        keys = F.pad(self.keys, (0, 0, 0, more) if self.as_columns(self.keys) else rows)
        return self._with(keys, F.pad(self.values, rows), self.length)

    def filled(self) -> tuple[Tensor, Tensor]:
        """[B, H, S*K, d_k] and [B, H, S*K, d_v]"""
        used = self.columns(self.length)
        values = self.values[:, :, :used].flatten(2, 3)
        if self.as_columns(self.keys):
            return self.keys[:, :, :, :used].flatten(3, 4).transpose(2, 3), values
        return self.keys[:, :, :used].flatten(2, 3), values


@dataclass
class FixedKeyValueCache(KeyValueCache):
    """With room for a number of steps, of which all are looked at: the sight forbids those to come."""

    written: Tensor = field(default_factory=lambda: torch.empty(0))  # [B] steps

    @classmethod
    def with_room(cls, sizes: tuple[int, int, int, int], beam: int, steps: int, like: Tensor) -> FixedKeyValueCache:
        """For ``sizes`` = B, H, d_k, d_v."""
        cache = cls.empty(sizes, beam, steps, like)
        none = torch.zeros(sizes[0], dtype=torch.long, device=like.device)
        return cls(cache.keys.zero_(), cache.values.zero_(), steps, none)  # zeros: the sight forbids no NaN

    def reaching(self, steps: int) -> FixedKeyValueCache:
        return replace(self._padded(steps - self.length), length=steps)

    def rows(self, index: Tensor) -> FixedKeyValueCache:
        moved = super().rows(index)
        return self if moved is self else replace(moved, written=self.written[: moved.keys.size(0)])

    def _with(self, keys: Tensor, values: Tensor, length: int) -> FixedKeyValueCache:
        return FixedKeyValueCache(keys, values, length, self.written)

    def append(self, keys: Tensor, values: Tensor) -> FixedKeyValueCache:
        column = self.written[:1]
        if self.as_columns(keys):
            self.keys.index_copy_(3, column, keys.transpose(2, 3).unsqueeze(3))
        else:
            self.keys.index_copy_(2, column, keys.unsqueeze(2))
        self.values.index_copy_(2, column, values.unsqueeze(2))
        return FixedKeyValueCache(self.keys, self.values, self.length, self.written + 1)


@dataclass
class RecentKeyValueCache(KeyValueCache):
    """Only the last ``window`` steps: step t stands in column t mod window, where it replaces t - window."""

    window: int = 1

    def _with(self, keys: Tensor, values: Tensor, length: int) -> RecentKeyValueCache:
        return RecentKeyValueCache(keys, values, length, self.window)

    def columns(self, length: int) -> int:
        return min(length, self.window)

    def column(self, step: int) -> int:
        return step % self.window

    def steps(self) -> Tensor:
        """[S] which step stands in each column when the next one is written."""
        columns = torch.arange(self.columns(self.length + 1), device=self.keys.device)
        return self.length - (self.length - columns) % self.window
