"""Attention of one decoding step in C (nmt.native).

Shapes: B sentences, K beam, N = B*K hypotheses, H heads, S positions of a source, D = H*d width of all heads.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.modules.autoregression import INITIAL_CAPACITY, Past
from nmt.modules.sight import Sight
from nmt.native.library import Strides, at, built, library


def runs(like: Tensor) -> bool:
    """Whether it computes where ``like`` is."""
    return like.device.type == "cpu" and like.dtype in (torch.float32, torch.bfloat16) and library() is not None


@dataclass(frozen=True, kw_only=True)
class SlotSight(Sight):
    """Each hypothesis sees, of every step, what the slot has written through which it came."""

    slots: Tensor  # [N, capacity]


@dataclass
class SlotCache(Past):
    """Keys and values by step and slot, in float32. When sentences leave, the others stay where they are."""

    keys: Tensor  # [any, capacity, K, D]
    values: Tensor
    places: Tensor | None = None  # [B] where each sentence stands; None: one after the other
    length: int = 0

    @classmethod
    def empty(cls, sentences: int, beam: int, width: int) -> SlotCache:
        shape = (sentences, INITIAL_CAPACITY, beam, width)
        return cls(torch.empty(shape), torch.empty(shape))

    def rows(self, index: Tensor) -> SlotCache:
        """Nothing moves: hypotheses [N'] change their slots, or whole sentences leave."""
        sentences, beam = self.keys.size(0) if self.places is None else self.places.numel(), self.keys.size(2)
        if index.numel() == sentences * beam:
            return self
        staying = index[::beam] // beam
        return SlotCache(self.keys, self.values, staying if self.places is None else self.places[staying], self.length)

    def at(self, length: int) -> SlotCache:
        """After so many steps."""
        return SlotCache(self.keys, self.values, self.places, length)

    def with_room(self) -> SlotCache:
        if self.length < self.keys.size(1):
            return self
        return SlotCache(self._grown(self.keys), self._grown(self.values), None, self.length)

    def clone(self) -> SlotCache:
        return SlotCache(self._own(self.keys).clone(), self._own(self.values).clone(), None, self.length)

    def _own(self, numbers: Tensor) -> Tensor:
        return numbers if self.places is None else numbers[self.places]

    def _grown(self, numbers: Tensor) -> Tensor:
        """With twice the room, for those sentences alone that are still there."""
        own = self._own(numbers)
        grown = own.new_empty(own.size(0), 2 * own.size(1), *own.shape[2:])
        grown[:, : own.size(1)] = own
        return grown


def look_back(
    projected: Tensor, cache: SlotCache, sight: SlotSight, heads: int, scale: float
) -> tuple[Tensor, SlotCache]:
    """Queries, keys and values of one step side by side [B, K, 3D] -> [B, K, D], and the cache with that step in it."""
    rows = projected.float().contiguous()
    grown, width = cache.with_room(), projected.size(2) // 3
    sentences, beam, _ = rows.shape
    out, length = rows.new_empty(sentences, beam, width), cache.length + 1
    first, slots, places = rows.data_ptr(), sight.slots, grown.places
    strides = Strides(grown.keys.size(1) * beam * width, beam * width, width, width // heads)
    found = built()
    found.attend(
        first,
        3 * width,
        first + 4 * width,
        first + 8 * width,
        grown.keys.data_ptr(),
        grown.values.data_ptr(),
        at(places),
        ctypes.addressof(strides),
        slots.data_ptr(),
        slots.size(1),
        None,
        0,
        out.data_ptr(),
        sentences,
        beam,
        heads,
        width // heads,
        length,
        scale,
        None,
        0,
    )
    return out.to(projected.dtype), grown.at(length)


def look_across(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """[B, K, D], [B, H, S, d], [B, H, S, d] of the same layout, [B, 1, 1, S] -> [B, K, D]"""
    rows = queries.float().contiguous()
    sentences, beam, width = rows.shape
    heads, length, size = keys.shape[1:]
    by_sentence, by_head, by_position, _ = keys.stride()
    assert keys.stride() == values.stride() and keys.stride(3) == 1 and keys.dtype == values.dtype == torch.float32
    shift = None if bias is None else bias.float().view(sentences, length)
    out, strides = torch.empty_like(rows), Strides(by_sentence, by_position, 0, by_head)
    found = built()
    found.attend(
        rows.data_ptr(),
        width,
        None,
        None,
        keys.data_ptr(),
        values.data_ptr(),
        None,
        ctypes.addressof(strides),
        None,
        0,
        at(shift),
        length,
        out.data_ptr(),
        sentences,
        beam,
        heads,
        size,
        length,
        scale,
        None,
        0,
    )
    return out.to(queries.dtype)
