"""Attention of one decoding step in C, where that could be built: a few queries are less work than the calls of torch that
they take. Without it everything works as well, more slowly.

Shapes: B sentences, K beam, N = B*K hypotheses, H heads, S positions of a source, D = H*d width of all heads.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.modules.autoregression import INITIAL_CAPACITY, Past
from nmt.modules.sight import Sight

SWITCH = "NMT_NATIVE"  # off: torch alone computes
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
_ARGUMENTS: list[Any] = [
    _POINTER,
    _COUNT,
    *[_POINTER] * 4,
    *[_COUNT] * 4,
    _POINTER,
    _COUNT,
    _POINTER,
    _COUNT,
    *[_POINTER] * 2,
]
_ARGUMENTS += [*[_COUNT] * 5, ctypes.c_float]


@functools.cache
def _library() -> ctypes.CDLL | None:
    """What setup.py built beside this file."""
    if os.environ.get(SWITCH) == "off":
        return None
    for path in sorted(Path(__file__).parent.glob("_decoding*.so")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # of another system or Python
            continue
        library.attend.argtypes = _ARGUMENTS
        library.attend.restype = None
        return library
    return None


def runs(like: Tensor) -> bool:
    """Whether it computes where ``like`` is."""
    return like.device.type == "cpu" and like.dtype in (torch.float32, torch.bfloat16) and _library() is not None


@dataclass(frozen=True, kw_only=True)
class SlotSight(Sight):
    """Each hypothesis sees, of every step, what the slot has written through which it came."""

    slots: Tensor  # [N, capacity]


@dataclass
class SlotCache(Past):
    """Keys and values by step and slot, in float32."""

    keys: Tensor  # [B, capacity, K, D]
    values: Tensor
    length: int = 0

    @classmethod
    def empty(cls, sentences: int, beam: int, width: int) -> SlotCache:
        shape = (sentences, INITIAL_CAPACITY, beam, width)
        return cls(torch.empty(shape), torch.empty(shape))

    def rows(self, index: Tensor) -> SlotCache:
        """Of hypotheses [N'] that only change their slots, nothing moves; of sentences that leave, nothing is kept."""
        sentences, beam = self.keys.size(0), self.keys.size(2)
        if index.numel() == sentences * beam:
            return self
        staying = index[::beam] // beam
        return SlotCache(self.keys.index_select(0, staying), self.values.index_select(0, staying), self.length)

    def with_room(self) -> SlotCache:
        capacity = self.keys.size(1)
        if self.length < capacity:
            return self
        more = (0, 0, 0, 0, 0, capacity)
        return SlotCache(F.pad(self.keys, more), F.pad(self.values, more), self.length)


def look_back(
    projected: Tensor, cache: SlotCache, sight: SlotSight, heads: int, scale: float
) -> tuple[Tensor, SlotCache]:
    """Queries, keys and values of one step side by side [B, K, 3D] -> [B, K, D], and the cache with that step in it."""
    rows = projected.float().contiguous()
    grown, width = cache.with_room(), projected.size(2) // 3
    sentences, capacity, beam, _ = grown.keys.shape
    out, length = rows.new_empty(sentences, beam, width), cache.length + 1
    scratch = rows.new_empty(heads * length)  # has a name, so that it lives as long as its address is used
    first = rows.data_ptr()
    library = _library()
    assert library is not None
    library.attend(
        first,
        3 * width,
        first + 4 * width,
        first + 8 * width,
        grown.keys.data_ptr(),
        grown.values.data_ptr(),
        capacity * beam * width,
        beam * width,
        width,
        width // heads,
        sight.slots.data_ptr(),
        sight.slots.size(1),
        None,
        0,
        out.data_ptr(),
        scratch.data_ptr(),
        sentences,
        beam,
        heads,
        width // heads,
        length,
        scale,
    )
    return out.to(projected.dtype), SlotCache(grown.keys, grown.values, length)


def look_across(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """[B, K, D], [B, H, S, d], [B, H, S, d] of the same layout, [B, 1, 1, S] -> [B, K, D]"""
    rows = queries.float().contiguous()
    sentences, beam, width = rows.shape
    heads, length, size = keys.shape[1:]
    by_sentence, by_head, by_position, _ = keys.stride()
    assert keys.stride() == values.stride() and keys.stride(3) == 1 and keys.dtype == values.dtype == torch.float32
    shift = None if bias is None else bias.float().view(sentences, length)
    out, scratch = torch.empty_like(rows), rows.new_empty(heads * length)
    library = _library()
    assert library is not None
    library.attend(
        rows.data_ptr(),
        width,
        None,
        None,
        keys.data_ptr(),
        values.data_ptr(),
        by_sentence,
        by_position,
        0,
        by_head,
        None,
        0,
        None if shift is None else shift.data_ptr(),
        length,
        out.data_ptr(),
        scratch.data_ptr(),
        sentences,
        beam,
        heads,
        size,
        length,
        scale,
    )
    return out.to(queries.dtype)
