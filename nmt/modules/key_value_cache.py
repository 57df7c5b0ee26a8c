"""Keys and values of decoded positions: all of them, or the most recent ones.

Shapes: N hypotheses, H heads, S columns in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.modules.autoregression import Past

INITIAL_CAPACITY = 16  # positions that a fresh cache holds; it doubles when full


@dataclass
class KeyValueCache(Past):
    """Keys and values of the positions decoded so far, in tensors that grow by doubling."""

    keys: Tensor  # [N, H, capacity, d_k]
    values: Tensor  # [N, H, capacity, d_v]
    length: int = 0

    def columns(self, length: int) -> int:
        """How many columns hold the first ``length`` positions."""
        return length

    def slots(self, positions: Tensor) -> Tensor:
        """The columns of these positions."""
        return positions

    def append(self, keys: Tensor, values: Tensor, positions: Tensor) -> KeyValueCache:
        """Write keys [N, H, 1, d_k] and values at each row's position [N]. The old cache is consumed."""
        grown = self._with_room()
        every, slots = torch.arange(positions.size(0), device=positions.device), self.slots(positions)
        grown.keys[every, :, slots] = keys[:, :, 0]
        grown.values[every, :, slots] = values[:, :, 0]
        return replace(grown, length=self.length + 1)

    def _with_room(self) -> KeyValueCache:
        capacity = self.keys.size(2)
        if self.columns(self.length + 1) <= capacity:
            return self
        grown = (0, 0, 0, self.columns(capacity + max(capacity, INITIAL_CAPACITY)) - capacity)
        return replace(self, keys=F.pad(self.keys, grown), values=F.pad(self.values, grown))

    def filled(self) -> tuple[Tensor, Tensor]:
        """[N, H, S, d_k] and [N, H, S, d_v]"""
        used = self.columns(self.length)
        return self.keys[:, :, :used], self.values[:, :, :used]


@dataclass
class RecentKeyValueCache(KeyValueCache):
    """Only the last ``window`` positions: position p stands in column p mod window, where it replaces p - window."""

    window: int = 1

    def columns(self, length: int) -> int:
        return min(length, self.window)

    def slots(self, positions: Tensor) -> Tensor:
        return positions % self.window

    def positions_at(self, now: Tensor) -> Tensor:
        """[N] -> [N, S] which position stands in each column when position ``now`` has been written.

        Columns that are not written yet have negative ones.
        """
        columns = torch.arange(self.columns(self.length + 1), device=now.device)[None]  # [1, S]
        return now[:, None] - (now[:, None] - columns) % self.window
