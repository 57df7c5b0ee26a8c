"""How a position sees the others of its sequence: the interfaces of what stands in a layer's first sublayer.

Hypotheses change their slots of the beam from step to step. What a slot has written stays where it is: every hypothesis
looks at what all slots of its sentence have written, and the beam history says which of that is its own past. So nothing is
copied, and the products have as many rows as the beam is wide.

Shapes: B sentences, K beam, N = B*K hypotheses, H heads, T positions, S steps, D model width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.layers.overriding import require_together
from nmt.models.transformer.mask import CanBeFlat, Mask, Places, Weights, whole_sequence
from nmt.trees import RowTree

OVERRIDE_STEP = "which decodes with what was learned; override it too"

INITIAL_CAPACITY = 16  # steps that there is room for at first; it doubles when full


class LayerCache(RowTree, ABC):
    """What a layer keeps of the positions decoded so far, by hypothesis or by slot of a sentence's beam."""


@dataclass
class BeamHistory(RowTree):
    """How far each hypothesis is, and in which slot of its sentence's beam it was at each step."""

    positions: Tensor  # [N] of the next token
    slots: Tensor  # [N, capacity] by step
    beam: int
    length: int = 0  # steps made; no position is beyond

    @classmethod
    def start(cls, sentences: int, beam: int, like: Tensor) -> BeamHistory:
        positions = torch.zeros(sentences * beam, dtype=torch.long, device=like.device)
        return cls(positions, torch.zeros(sentences * beam, 0, dtype=torch.int32, device=like.device), beam)

    @property
    def bound(self) -> int:
        """Exclusive upper bound of this step's positions."""
        return self.length + 1

    def entered(self) -> BeamHistory:
        """The history with the next step in it: every hypothesis writes into the slot where it stands now."""
        slots = self.slots
        if slots.size(1) == self.length:
            slots = F.pad(slots, (0, max(INITIAL_CAPACITY, self.length)))
        slots.view(-1, self.beam, slots.size(1))[:, :, self.length] = self._every_slot()
        return BeamHistory(self.positions, slots, self.beam, self.length)

    def passed(self) -> BeamHistory:
        """The history after that step."""
        return BeamHistory(self.positions + 1, self.slots, self.beam, self.length + 1)

    def mask(self, dtype: torch.dtype, steps: Tensor | None = None) -> Mask:
        """Columns are what all K slots of a sentence wrote in each of the ``steps`` [S] (None: in all so far), S*K of them;
        a hypothesis sees those of its own past alone."""
        count, beam = self.bound, self.beam
        slots = self.slots[:, :count] if steps is None else self.slots.index_select(1, steps)  # [N, S]
        if steps is None:
            steps = torch.arange(count, device=slots.device)
        places = Places(self.queries, steps.repeat_interleave(beam)[None], count)
        if not self._has_others:
            return Mask(None, places)
        others = slots[:, :, None] != self._every_slot()  # [N, S, K]
        bias = torch.zeros(others.shape, dtype=dtype, device=slots.device).masked_fill_(others, -torch.inf)
        return Mask(bias.view(-1, 1, beam, slots.size(1) * beam), places)

    @property
    def queries(self) -> Tensor:
        """[B, K] positions of the next token."""
        return self.positions.view(-1, self.beam)

    @property
    def _has_others(self) -> bool:
        """Whether anything is written that is not in a hypothesis' own past."""
        return self.beam > 1

    def _every_slot(self) -> Tensor:
        return torch.arange(self.beam, dtype=torch.int32, device=self.slots.device)


class SourceAttention(CanBeFlat, ABC):
    """How a source position sees the others: what stands in an encoder layer's first sublayer."""

    def padding_mask(self, padding: Tensor) -> Mask:
        """What every position of a sequence sees; ``padding`` [B, 1, 1, S] is -inf at padding."""
        return Mask(padding, whole_sequence(padding.size(-1), padding.device))

    @abstractmethod
    def forward(self, x: Tensor, mask: Mask, record: Weights = None) -> Tensor:
        """[B, S, D] -> [B, S, D]; ``record`` receives attention weights."""


class Autoregression(CanBeFlat, ABC):
    """How a target position sees those before it: what stands in a decoder layer's first sublayer.

    All positions at once in training, one after the other in decoding, with the same result. Steps get the kind of cache
    that ``start`` makes.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        require_together(cls, "forward", ("step",), OVERRIDE_STEP)

    def causal_mask(self, x: Tensor) -> Mask:
        """The mask of all positions of x [B, T, D]."""
        return Mask(None, whole_sequence(x.size(1), x.device))

    @abstractmethod
    def forward(self, x: Tensor, mask: Mask, record: Weights) -> Tensor:
        """[B, T, D] -> [B, T, D]; position t depends on positions 0 ... t. ``record`` receives attention weights."""

    @abstractmethod
    def start(self, sentences: int, beam: int, like: Tensor) -> LayerCache:
        """The empty cache of their hypotheses, with the device and the type of ``like``."""

    def step_mask(self, cache: Any, history: BeamHistory) -> Mask:
        """The mask of one step."""
        return Mask(None, Places(history.queries, history.queries, history.bound))

    @abstractmethod
    def step(self, x: Tensor, cache: Any, mask: Mask) -> tuple[Tensor, LayerCache]:
        """One position, [B, K, D] -> [B, K, D], and the cache with that position in it. The old one is consumed."""


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
        capacity, column = self.values.size(2), self.column(self.length)
        full = self.columns(self.length + 1) > capacity
        grown = self.padded(self.columns(capacity + max(capacity, INITIAL_CAPACITY))) if full else self
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
