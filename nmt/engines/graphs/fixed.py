"""Decoder states whose tensors keep their shapes from step to step, as a recorded step wants them.

A recurrent state is of this kind by itself. One that grows, as a key-value cache does, gets room for a number of steps.

Shapes: B sentences, K beam, N = B*K hypotheses, H heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.models.transformer.autoregression import BeamHistory, KeyValueCache

Tree = TypeVar("Tree")

_NOBODY = -1  # in place of a slot: in no hypothesis' past


@dataclass
class FixedBeamHistory(BeamHistory):
    """A beam history with room for a number of steps; ``length`` stays 0, since every tensor tells how far it is."""

    @property
    def bound(self) -> int:
        return self.slots.size(1)

    def entered(self) -> FixedBeamHistory:
        own = self._every_slot().repeat(self.positions.size(0) // self.beam)
        return replace(self, slots=self.slots.scatter(1, self.positions[:, None], own[:, None]))

    def passed(self) -> FixedBeamHistory:
        return replace(self, positions=self.positions + 1)

    @property
    def _has_others(self) -> bool:
        return True  # at least the steps that are still to come


@dataclass
class FixedKeyValueCache(KeyValueCache):
    """A cache with room for ``length`` steps, of which all are looked at: the mask forbids those to come."""

    written: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0))  # [B] steps

    def rows(self, index: Tensor) -> FixedKeyValueCache:
        moved = super().rows(index)
        return self if moved is self else replace(moved, written=self.written[: moved.keys.size(0)])

    def append(self, keys: Tensor, values: Tensor) -> FixedKeyValueCache:
        column = self.written[:1]
        self.keys.index_copy_(2, column, keys.unsqueeze(2))
        self.values.index_copy_(2, column, values.unsqueeze(2))
        return replace(self, written=self.written + 1)


def fixed(state: Tree, room: int) -> Tree:
    """The state before the first step, with room for so many steps wherever it would grow."""

    def change(node: Any) -> Any:
        if type(node) is BeamHistory:
            slots = node.slots.new_full((node.slots.size(0), room), _NOBODY)
            return FixedBeamHistory(node.positions, slots, node.beam)
        if type(node) is KeyValueCache:
            empty = node.padded(room)  # with zeros: the mask forbids no NaN
            none = torch.zeros(len(node.keys), dtype=torch.long, device=node.keys.device)
            return FixedKeyValueCache(torch.zeros_like(empty.keys), torch.zeros_like(empty.values), room, none)
        return None

    changed: Tree = _changed(change, state)
    return changed


def widened(state: Tree, room: int) -> Tree:
    """The same with more room."""

    def change(node: Any) -> Any:
        if isinstance(node, FixedBeamHistory):
            return replace(node, slots=F.pad(node.slots, (0, room - node.slots.size(1)), value=_NOBODY))
        if isinstance(node, FixedKeyValueCache):
            return replace(node.padded(room), length=room)
        return None

    changed: Tree = _changed(change, state)
    return changed


def _changed(change: Callable[[Any], Any], node: Any) -> Any:
    """The tree with ``change`` applied to each node; where it gives None, to what is inside."""
    other = change(node)
    if other is not None:
        return other
    if isinstance(node, tuple):
        return tuple(_changed(change, child) for child in node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = dataclasses.fields(node)
        return replace(node, **{field.name: _changed(change, getattr(node, field.name)) for field in fields})
    return node
