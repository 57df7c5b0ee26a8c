"""Keys and values of decoded positions: all of them, or the most recent ones.

Hypotheses change their slots of the beam from step to step. What a slot has written stays where it is: every hypothesis
looks at what all slots of its sentence have written, and the beam history says which of that is its own past. So nothing is
copied, and the products have as many rows as the beam is wide.

Shapes: B sentences, K beam, N = B*K hypotheses, H heads, S steps in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.models.transformer.autoregression import INITIAL_CAPACITY, LayerCache

Self = TypeVar("Self", bound="KeyValueCache")


@dataclass
class KeyValueCache(LayerCache):
    """Keys and values of all steps so far, in tensors that grow by doubling."""

    keys: Tensor  # [B, H, capacity, K, d_k]
    values: Tensor  # [B, H, capacity, K, d_v]
    length: int = 0

    @classmethod
    def empty(cls: type[Self], sizes: tuple[int, int, int, int], beam: int, capacity: int, like: Tensor) -> Self:
        """For ``sizes`` = B, H, d_k, d_v."""
        sentences, heads, d_k, d_v = sizes
        shape = (sentences, heads, capacity, beam)
        return cls(like.new_empty(*shape, d_k), like.new_empty(*shape, d_v))

    def rows(self: Self, index: Tensor) -> Self:
        """Of hypotheses [N'] that only change their slots, nothing moves; of sentences that leave, nothing is kept."""
        sentences, beam = self.values.size(0), self.values.size(3)
        if index.numel() == sentences * beam:
            return self
        staying = index[::beam] // beam
        return replace(self, keys=self.keys.index_select(0, staying), values=self.values.index_select(0, staying))

    def columns(self, length: int) -> int:
        """How many columns hold the first ``length`` steps."""
        return length

    def column(self, step: int) -> int:
        """Where a step stands."""
        return step

    def append(self: Self, keys: Tensor, values: Tensor) -> Self:
        """Write keys [B, H, K, d_k] and values of the next step. The old cache is consumed."""
        grown, column = self._with_room(), self.column(self.length)
        grown.keys[:, :, column] = keys
        grown.values[:, :, column] = values
        return replace(grown, length=self.length + 1)

    def filled(self) -> tuple[Tensor, Tensor]:
        """[B, H, S*K, d_k] and [B, H, S*K, d_v]"""
        used = self.columns(self.length)
        return self.keys[:, :, :used].flatten(2, 3), self.values[:, :, :used].flatten(2, 3)

    def padded(self: Self, capacity: int) -> Self:
        """With so many columns."""
        more = (0, 0, 0, 0, 0, capacity - self.values.size(2))
        return replace(self, keys=F.pad(self.keys, more), values=F.pad(self.values, more))

    def _with_room(self: Self) -> Self:
        capacity = self.values.size(2)
        if self.columns(self.length + 1) <= capacity:
            return self
        return self.padded(self.columns(capacity + max(capacity, INITIAL_CAPACITY)))


@dataclass
class RecentKeyValueCache(KeyValueCache):
    """Only the last ``window`` steps: step t stands in column t mod window, where it replaces t - window."""

    window: int = 1

    def columns(self, length: int) -> int:
        return min(length, self.window)

    def column(self, step: int) -> int:
        return step % self.window

    def steps(self) -> Tensor:
        """[S] which step stands in each column when the next one is written."""
        columns = torch.arange(self.columns(self.length + 1), device=self.keys.device)
        return self.length - (self.length - columns) % self.window
