"""How a target position sees those before it. What stands in a decoder layer's first sublayer keeps to this interface.

Shapes: B sentences, K beam, N = B*K hypotheses, H heads, T positions, S steps, D model width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.modules.sight import FlatSight, Places, Segments, Sight, whole_sequence
from nmt.trees import RowTree

INITIAL_CAPACITY = 16  # steps that there is room for at first; it doubles when full


class Past(RowTree, ABC):
    """What a layer remembers of the positions decoded so far, by hypothesis or by slot of a sentence's beam."""


@dataclass
class Lineage(RowTree):
    """How far each hypothesis is, and through which slots of its sentence's beam it came."""

    positions: Tensor  # [N] of the next token
    slots: Tensor  # [N, capacity] by step
    beam: int
    length: int = 0  # steps made; no position is beyond

    @classmethod
    def start(cls, sentences: int, beam: int, device: torch.device) -> Lineage:
        positions = torch.zeros(sentences * beam, dtype=torch.long, device=device)
        return cls(positions, torch.zeros(sentences * beam, 0, dtype=torch.uint8, device=device), beam)

    def entered(self) -> Lineage:
        """Before the next step, in which every hypothesis writes into the slot where it stands now."""
        slots = self.slots
        if slots.size(1) == self.length:
            slots = F.pad(slots, (0, max(INITIAL_CAPACITY, self.length)))
        slots.view(-1, self.beam, slots.size(1))[:, :, self.length] = self._every_slot()
        return replace(self, slots=slots)

    def passed(self) -> Lineage:
        """After it."""
        return replace(self, positions=self.positions + 1, length=self.length + 1)

    def sight(self, steps: Tensor, dtype: torch.dtype) -> Sight:
        """Of what all slots of a sentence wrote in these steps [S], S*K columns, hypotheses see their own past."""
        places = Places(self.queries, steps.repeat_interleave(self.beam)[None], self.length + 1)
        if self.beam == 1:
            return Sight(None, places)
        own = self.slots.index_select(1, steps)[:, :, None] == self._every_slot()  # [N, S, K]
        bias = torch.zeros(own.shape, dtype=dtype, device=own.device).masked_fill_(~own, float("-inf"))
        return Sight(bias.view(-1, 1, self.beam, len(steps) * self.beam), places)

    @property
    def queries(self) -> Tensor:
        """[B, K] positions of the next token."""
        return self.positions.view(-1, self.beam)

    def _every_slot(self) -> Tensor:
        return torch.arange(self.beam, dtype=torch.uint8, device=self.slots.device)


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
    def start(self, sentences: int, beam: int, like: Tensor) -> Past:
        """The empty past of their hypotheses, on the device of ``like``; what is cached has its type."""

    def now(self, past: Past, lineage: Lineage, dtype: torch.dtype) -> Sight:
        """The sight of one step."""
        return Sight(None, Places(lineage.queries, lineage.queries, lineage.length + 1))

    @abstractmethod
    def step(self, x: Tensor, past: Past, sight: Sight) -> tuple[Tensor, Past]:
        """One position: [B, K, D] -> [B, K, D], and the past with that position in it. The old past is consumed."""
