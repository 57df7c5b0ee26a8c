"""How a target position sees those before it. What stands in a decoder layer's first sublayer keeps to this interface.

Shapes: B sentences, N hypotheses, T queries, S keys, D model width, H heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from nmt.modules.sight import FlatSight, Places, Segments, Sight, whole_sequence
from nmt.trees import RowTree


class Past(RowTree, ABC):
    """What a layer remembers of the positions decoded so far: N rows."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of steps made; no row's position is beyond."""


class Autoregression(nn.Module, ABC):
    """All positions at once in training, one after the other in decoding, with the same result."""

    @property
    def flat(self) -> bool:
        """Whether it can do without padding."""
        return False

    def whole(self, x: Tensor) -> Sight:
        """The sight of all positions of x [B, T, D]."""
        return Sight(None, whole_sequence(x.size(1), x.device))

    def along(self, segments: Segments) -> FlatSight:
        """The sight of all positions of sentences without padding, where it is ``flat``."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, x: Tensor, sight: Sight, record: list[Tensor] | None) -> Tensor:
        """[B, T, D] -> [B, T, D]; position t depends on positions 0 ... t. ``record`` receives attention weights."""

    @abstractmethod
    def start(self, rows: int, like: Tensor) -> Past:
        """The empty past of ``rows`` hypotheses, on the device of ``like``; what is cached has its type."""

    def now(self, past: Past, positions: Tensor, dtype: torch.dtype) -> Sight:
        """The sight of one step, whose rows stand at ``positions`` [N]."""
        return Sight(None, Places(positions[:, None], positions[:, None], past.length + 1))

    @abstractmethod
    def step(self, x: Tensor, past: Past, sight: Sight) -> tuple[Tensor, Past]:
        """One position: [N, 1, D] -> [N, 1, D], and the past with that position in it. The old past is consumed."""
