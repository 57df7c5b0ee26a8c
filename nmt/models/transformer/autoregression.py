"""The interfaces of a layer's first sublayer, and the caches of decoding.

In beam search a hypothesis may move to another slot of its sentence's beam at each step. Cached keys and values stay in the
slot that wrote them: every hypothesis attends to all slots of its sentence, and the beam history masks those that are not
its own past. So nothing is copied, at the cost of K times as many columns.

Shapes: B sentences, K beam, N = B*K hypotheses, H heads, T positions, S steps, D model width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.layers.overriding import require_together
from nmt.models.transformer.mask import FlatMask, Mask, QueryKeyPositions, Segments, WeightRecord, whole_sequence
from nmt.trees import RowTree

OVERRIDE_STEP = "which must compute the same in decoding; override it too"

INITIAL_CAPACITY = 16  # steps; the capacity doubles when full


class LayerCache(RowTree, ABC):
    """A layer's cache of the positions decoded so far, by hypothesis or by slot of a sentence's beam."""


@dataclass
class BeamHistory(RowTree):
    """The position of each hypothesis, and its slot in the beam at each step."""

    positions: Tensor  # [N] of the next token
    slots: Tensor  # [N, capacity] by step
    beam: int
    length: int = 0  # steps made: an upper bound of the positions

    @classmethod
    def start(cls, sentences: int, beam: int, like: Tensor) -> BeamHistory:
        positions = torch.zeros(sentences * beam, dtype=torch.long, device=like.device)
        return cls(positions, torch.zeros(sentences * beam, 0, dtype=torch.int32, device=like.device), beam)

    @property
    def bound(self) -> int:
        """Exclusive upper bound of this step's positions."""
        return self.length + 1

    def entered(self) -> BeamHistory:
        """Return the history with the next step, in which every hypothesis writes into its current slot."""
        slots = self.slots
        if slots.size(1) == self.length:
            slots = F.pad(slots, (0, max(INITIAL_CAPACITY, self.length)))
        slots.view(-1, self.beam, slots.size(1))[:, :, self.length] = self._every_slot()
        return BeamHistory(self.positions, slots, self.beam, self.length)

    def passed(self) -> BeamHistory:
        """Return the history after that step."""
        return BeamHistory(self.positions + 1, self.slots, self.beam, self.length + 1)

    def mask(self, dtype: torch.dtype, steps: Tensor | None = None) -> Mask:
        """Return a mask over S*K columns, the K slots of each of the ``steps`` [S] (None: all so far).

        A hypothesis attends only to columns that hold its own history.
        """
        count, beam = self.bound, self.beam
        slots = self.slots[:, :count] if steps is None else self.slots.index_select(1, steps)  # [N, S]
        if steps is None:
            steps = torch.arange(count, device=slots.device)
        positions = QueryKeyPositions(self.queries, steps.repeat_interleave(beam)[None], count)
        if not self._has_others:
            return Mask(None, positions)
        others = slots[:, :, None] != self._every_slot()  # [N, S, K]
        bias = torch.zeros(others.shape, dtype=dtype, device=slots.device).masked_fill_(others, -torch.inf)
        return Mask(bias.view(-1, 1, beam, slots.size(1) * beam), positions)

    @property
    def queries(self) -> Tensor:
        """[B, K] positions of the next token."""
        return self.positions.view(-1, self.beam)

    @property
    def _has_others(self) -> bool:
        """Whether any column is not in a hypothesis' own past."""
        return self.beam > 1

    def _every_slot(self) -> Tensor:
        return torch.arange(self.beam, dtype=torch.int32, device=self.slots.device)


class SequenceSublayer(nn.Module, ABC):
    """The sublayer through which a position depends on the other positions of its sequence."""

    applies_positions: bool = False  # whether it applies positions itself, such as rotary ones

    @property
    def flat(self) -> bool:
        """Whether it supports batches without padding, in its current mode."""
        return False

    def flat_mask(self, segments: Segments) -> FlatMask:
        """Return the mask of sentences without padding; called only if ``flat``."""
        raise NotImplementedError


class SourceAttention(SequenceSublayer):
    """The first sublayer of an encoder layer: a source position depends on the whole sentence."""

    def padding_mask(self, padding: Tensor) -> Mask:
        """Return the mask of a padded batch; ``padding`` [B, 1, 1, S] is -inf at padding."""
        return Mask(padding, whole_sequence(padding.size(-1), padding.device))

    @abstractmethod
    def forward(self, x: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        """[B, S, D] -> [B, S, D]; ``record`` receives attention weights."""


class Autoregression(SequenceSublayer):
    """The first sublayer of a decoder layer: a target position depends on itself and earlier positions.

    ``forward`` computes all positions at once, ``step`` one after another with the same result. ``start`` returns the type
    of cache that ``step`` takes.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        require_together(cls, "forward", ("step",), OVERRIDE_STEP)

    def causal_mask(self, x: Tensor) -> Mask:
        """Return the mask of all positions of x [B, T, D]."""
        return Mask(None, whole_sequence(x.size(1), x.device))

    @abstractmethod
    def forward(self, x: Tensor, mask: Mask, record: WeightRecord) -> Tensor:
        """[B, T, D] -> [B, T, D]; position t depends on positions 0 ... t. ``record`` receives attention weights."""

    @abstractmethod
    def start(self, sentences: int, beam: int, like: Tensor) -> LayerCache:
        """Return an empty cache with the device and data type of ``like``."""

    def step_mask(self, cache: Any, history: BeamHistory) -> Mask:
        """Return the mask of one step."""
        return Mask(None, QueryKeyPositions(history.queries, history.queries, history.bound))

    @abstractmethod
    def step(self, x: Tensor, cache: Any, mask: Mask) -> tuple[Tensor, LayerCache]:
        """One position: [B, K, D] -> [B, K, D], and the cache with that position. The old cache must not be used again."""


Self = TypeVar("Self", bound="KeyValueCache")


@dataclass
class KeyValueCache(LayerCache):
    """The keys and values of all steps so far; the capacity doubles when full."""

    keys: Tensor  # [B, H, capacity, K, d_k]
    values: Tensor  # [B, H, capacity, K, d_v]
    length: int = 0

    @classmethod
    def empty(cls: type[Self], sizes: tuple[int, int, int, int], beam: int, capacity: int, like: Tensor) -> Self:
        """Return an empty cache; ``sizes``: B, H, d_k and d_v."""
        sentences, heads, d_k, d_v = sizes
        shape = (sentences, heads, capacity, beam)
        return cls(like.new_empty(*shape, d_k), like.new_empty(*shape, d_v))

    def rows(self: Self, index: Tensor) -> Self:
        """Drop sentences that are not in ``index`` [N']. Hypotheses that change their slots leave the cache as it is."""
        sentences, beam = self.values.size(0), self.values.size(3)
        if index.numel() == sentences * beam:
            return self
        staying = index[::beam] // beam
        return replace(self, keys=self.keys.index_select(0, staying), values=self.values.index_select(0, staying))

    def columns(self, length: int) -> int:
        """Return the number of columns that hold the first ``length`` steps."""
        return length

    def column(self, step: int) -> int:
        """Return the column of a step."""
        return step

    def append(self: Self, keys: Tensor, values: Tensor) -> Self:
        """Add keys [B, H, K, d_k] and values of the next step. The old cache must not be used again."""
        capacity, column = self.values.size(2), self.column(self.length)
        full = self.columns(self.length + 1) > capacity
        grown = self.padded(self.columns(capacity + max(capacity, INITIAL_CAPACITY))) if full else self
        grown.keys[:, :, column] = keys
        grown.values[:, :, column] = values
        return replace(grown, length=self.length + 1)

    def filled(self) -> tuple[Tensor, Tensor]:
        """Return the keys [B, H, S*K, d_k] and values [B, H, S*K, d_v] of all steps."""
        used = self.columns(self.length)
        return self.keys[:, :, :used].flatten(2, 3), self.values[:, :, :used].flatten(2, 3)

    def padded(self: Self, capacity: int) -> Self:
        """Return the cache with ``capacity`` columns."""
        more = (0, 0, 0, 0, 0, capacity - self.values.size(2))
        return replace(self, keys=F.pad(self.keys, more), values=F.pad(self.values, more))


@dataclass
class RecentKeyValueCache(KeyValueCache):
    """The last ``window`` steps only: step t is in column t mod window, where it replaces step t - window."""

    window: int = 1

    def columns(self, length: int) -> int:
        return min(length, self.window)

    def column(self, step: int) -> int:
        return step % self.window

    def steps(self) -> Tensor:
        """Return the step [S] in each column after the next step is written."""
        columns = torch.arange(self.columns(self.length + 1), device=self.keys.device)
        return self.length - (self.length - columns) % self.window
