"""Layers of the Transformer, called as a whole. Shapes: B sentences, K beam, S source positions, M real ones, D width."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from torch import Tensor, nn

from nmt.native.library import Strides, at, built
from nmt.native.packing import Matrix, Packed


class _Norm(ctypes.Structure):
    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("epsilon", ctypes.c_float))


class _Layer(ctypes.Structure):
    _fields_ = (
        *[(name, Matrix) for name in ("projection", "look_output", "query", "memory", "read_output", "inner", "outer")],
        *[(name, _Norm) for name in ("look_norm", "read_norm", "feed_norm")],
        ("norm_first", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("look_scale", ctypes.c_float),
        ("read_scale", ctypes.c_float),
    )


@dataclass(frozen=True)
class Attention:
    """Over the same sequence: ``project`` gives queries, keys and values side by side. Over a memory: queries alone."""

    project: Packed
    output: Packed
    norm: nn.LayerNorm
    scale: float


@dataclass(frozen=True)
class FeedForward:
    """With nothing below zero between its products."""

    inner: Packed
    outer: Packed
    norm: nn.LayerNorm


class Layer:
    """Attention over the own sequence, over a memory (not in an encoder), and a feed-forward network."""

    def __init__(
        self, look: Attention, read: Attention | None, feed: FeedForward, *, norm_first: bool, heads: int
    ) -> None:
        reading = read or look
        packed = (look.project, look.output, reading.project, reading.project, reading.output, feed.inner, feed.outer)
        norms = [_Norm(at(norm.weight), at(norm.bias), norm.eps) for norm in (look.norm, reading.norm, feed.norm)]
        width = look.output.outputs
        matrices = [part.matrix for part in packed]
        self._layer = _Layer(*matrices, *norms, norm_first, heads, width, look.scale, reading.scale)
        self._address = ctypes.addressof(self._layer)
        self._used = (look, reading, feed)  # lives as long as their addresses are used
        self.heads, self.width = heads, width
        found = built()
        self._step, self._encode = found.decoder_layer, found.encoder_layer

    def encode(self, rows: Tensor, offsets: Tensor) -> None:
        """Rows [M, D] of all sentences become the layer's result; sentence b begins at offsets[b], [B + 1]."""
        self._encode(self._address, rows.data_ptr(), offsets.numel() - 1, offsets.data_ptr())

    def step(
        self,
        x: Tensor,
        past: tuple[Tensor, Tensor, Tensor | None],
        steps: int,
        slots: Tensor,
        memory: tuple[Tensor, Tensor],
        bias: Tensor | None,
    ) -> None:
        """Rows [B, K, D] become the layer's result. ``past``: keys and values [any, capacity, K, D], into which the last
        of ``steps`` is written, and where in them the sentences stand [B] (None: one after the other); slots
        [B * K, any]; memory: keys and values [B, H, S, d]; bias [B, ..., S]."""
        sentences, beam, width = x.shape
        (keys, values, places), (memory_keys, memory_values) = past, memory
        head = width // self.heads
        cache = Strides(keys.size(1) * beam * width, beam * width, width, head)
        by_sentence, by_head, by_step, _ = memory_keys.stride()
        assert memory_keys.stride() == memory_values.stride() and memory_keys.stride(3) == 1
        read = Strides(by_sentence, by_step, 0, by_head)
        self._step(
            self._address,
            x.data_ptr(),
            sentences,
            beam,
            keys.data_ptr(),
            values.data_ptr(),
            at(places),
            ctypes.addressof(cache),
            steps,
            slots.data_ptr(),
            slots.size(1),
            memory_keys.data_ptr(),
            memory_values.data_ptr(),
            ctypes.addressof(read),
            memory_keys.size(2),
            at(bias),
        )
