"""How a target position sees those before it. What stands in a decoder layer's first sublayer keeps to this interface.

Shapes: B sentences, K beam, N = B*K hypotheses, H heads, T positions, S steps, D model width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.modules.sight import FlatSight, Places, Segments, Sight, whole_sequence
from nmt.trees import RowTree

INITIAL_CAPACITY = 16  # steps that there is room for at first; it doubles when full

_UNWRITTEN = -1  # in place of a slot: nobody's past

Self = TypeVar("Self", bound="Past")


class Past(RowTree, ABC):
    """What a layer remembers of the positions decoded so far, by hypothesis or by slot of a sentence's beam."""

    def reaching(self: Self, steps: int) -> Self:
        """The same with room for so many steps, where there is room for a fixed number of them."""
        return self


@dataclass
class Lineage(RowTree):
    """How far each hypothesis is, and through which slots of its sentence's beam it came."""

    positions: Tensor  # [N] of the next token
    slots: Tensor  # [N, capacity] by step
    beam: int
    length: int = 0  # steps made; no position is beyond

    @classmethod
    def start(cls, sentences: int, beam: int, like: Tensor) -> Lineage:
        positions = torch.zeros(sentences * beam, dtype=torch.long, device=like.device)
        return cls(positions, torch.zeros(sentences * beam, 0, dtype=torch.int32, device=like.device), beam)

    @property
    def bound(self) -> int:
        """Every position of now is below it."""
        return self.length + 1

    def reaching(self, steps: int) -> Lineage:
        return self

    def entered(self) -> Lineage:
        """Before the next step, in which every hypothesis writes into the slot where it stands now."""
        slots = self.slots
        if slots.size(1) == self.length:
            slots = F.pad(slots, (0, max(INITIAL_CAPACITY, self.length)))
        slots.view(-1, self.beam, slots.size(1))[:, :, self.length] = self._every_slot()
        return Lineage(self.positions, slots, self.beam, self.length)

    def passed(self) -> Lineage:
        """After it."""
        return Lineage(self.positions + 1, self.slots, self.beam, self.length + 1)

    def sight(self, dtype: torch.dtype, steps: Tensor | None = None) -> Sight:
        """Of what all slots of a sentence wrote in these steps [S], S*K columns, hypotheses see their own past; None: in
        all of them."""
        count, beam = self.bound, self.beam
        slots = self.slots[:, :count] if steps is None else self.slots.index_select(1, steps)  # [N, S]
        if steps is None:
            steps = torch.arange(count, device=slots.device)
        places = Places(self.queries, steps.repeat_interleave(beam)[None], count)
        if not self._has_others:
            return Sight(None, places)
        others = slots[:, :, None] != self._every_slot()  # [N, S, K]
        bias = torch.zeros(others.shape, dtype=dtype, device=slots.device).masked_fill_(others, -torch.inf)
        return Sight(bias.view(-1, 1, beam, slots.size(1) * beam), places)

    @property
    def queries(self) -> Tensor:
        """[B, K] positions of the next token."""
        return self.positions.view(-1, self.beam)

    @property
    def _has_others(self) -> bool:
        """Whether something is written that is not in a hypothesis' own past."""
        return self.beam > 1

    def _every_slot(self) -> Tensor:
        return torch.arange(self.beam, dtype=torch.int32, device=self.slots.device)


@dataclass
class FixedLineage(Lineage):
    """With room for a number of steps from the first one on: nothing but the numbers in its tensors changes."""

    @classmethod
    def with_room(cls, sentences: int, beam: int, steps: int, like: Tensor) -> FixedLineage:
        positions = torch.zeros(sentences * beam, dtype=torch.long, device=like.device)
        return cls(
            positions, torch.full((sentences * beam, steps), _UNWRITTEN, dtype=torch.int32, device=like.device), beam
        )

    @property
    def bound(self) -> int:
        return self.slots.size(1)

    def reaching(self, steps: int) -> FixedLineage:
        slots = F.pad(self.slots, (0, steps - self.slots.size(1)), value=_UNWRITTEN)
        return FixedLineage(self.positions, slots, self.beam)

    def entered(self) -> FixedLineage:
        own = self._every_slot().repeat(self.positions.size(0) // self.beam)
        return FixedLineage(self.positions, self.slots.scatter(1, self.positions[:, None], own[:, None]), self.beam)

    def passed(self) -> FixedLineage:
        return FixedLineage(self.positions + 1, self.slots, self.beam)

    @property
    def _has_others(self) -> bool:
        return True  # at least the steps that are still to come


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

    def start_fixed(self, sentences: int, beam: int, steps: int, like: Tensor) -> Past | None:
        """The same with room for so many steps, none of which changes a shape; None: it cannot."""
        return None

    def now(self, past: Past, lineage: Lineage) -> Sight:
        """The sight of one step."""
        return Sight(None, Places(lineage.queries, lineage.queries, lineage.bound))

    @abstractmethod
    def stepper(self) -> Callable[[Tensor, Past, Sight], tuple[Tensor, Past]]:
        """What computes one position, [B, K, D] -> [B, K, D], and the past with that position in it. The old past is
        consumed. Made anew whenever decoding begins (see plain.py)."""
