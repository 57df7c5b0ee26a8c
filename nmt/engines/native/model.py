"""A Transformer's weights as the C code holds them (nmt/native/decoding.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from nmt.config.choices import NumberFormat
from nmt.engines.native.matrices import Floats, Matrix, Packed, float32
from nmt.models.transformer.weights import (
    Attention,
    LayerWeights,
    Linear,
    Norm,
    StackWeights,
    TransformerWeights,
    sinusoids,
)
from nmt.native.library import address

FIRST_POSITIONS = 256  # sinusoids that there are at first


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


class _Stack(ctypes.Structure):
    _fields_ = (
        ("embedding", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("scale", ctypes.c_float),
        ("layers", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("last", _Norm),
    )


class _Model(ctypes.Structure):
    _fields_ = (("source", _Stack), ("target", _Stack), ("output", Matrix), ("width", ctypes.c_int64))


class NativeModel:
    """The structures of C, and all that they point to."""

    def __init__(self, weights: TransformerWeights, number_format: NumberFormat) -> None:
        self._shape = weights.norm_first, weights.num_heads, weights.width
        self._format = number_format
        self._kept: list[object] = []  # lives as long as its address is used
        self.output = self._packed(weights.output)
        self.longest_source, self.longest_target = _longest(weights.source), _longest(weights.target)
        self._positions = sinusoids(FIRST_POSITIONS, weights.width)
        stacks = self._stack(weights.source), self._stack(weights.target)
        self._model = _Model(*stacks, self.output.matrix, weights.width)
        self._sinusoidal = [
            stack
            for stack, given in ((self._model.source, weights.source), (self._model.target, weights.target))
            if given.positions is None
        ]
        self.address = ctypes.addressof(self._model)

    def reach(self, positions: int) -> None:
        """See to it that there are so many positions, where they are sinusoids."""
        if positions <= len(self._positions):
            return
        self._positions = sinusoids(max(positions, 2 * len(self._positions)), self._model.width)
        for stack in self._sinusoidal:
            stack.positions = address(self._positions)

    def _stack(self, weights: StackWeights) -> _Stack:
        layers = (_Layer * len(weights.layers))(*map(self._layer, weights.layers))
        self._kept.append(layers)
        positions = self._positions if weights.positions is None else self._numbers(weights.positions)
        last = _Norm() if weights.norm is None else self._norm(weights.norm)
        embedding = address(self._numbers(weights.embedding))
        return _Stack(embedding, address(positions), weights.scale, ctypes.addressof(layers), len(layers), last)

    def _layer(self, layer: LayerWeights) -> _Layer:
        look, feed = layer.self_attention, layer.feed_forward
        read, read_norm = layer.cross_attention, layer.cross_norm
        matrices = [
            self._packed(look.query, look.key, look.value).matrix,
            self._packed(look.output).matrix,
            *self._reading(read),
            self._packed(feed.inner).matrix,
            self._packed(feed.outer).matrix,
        ]
        norms = [layer.self_norm, read_norm, layer.feed_forward_norm]
        return _Layer(
            *matrices,
            *(_Norm() if norm is None else self._norm(norm) for norm in norms),
            *self._shape,
            look.scale,
            0.0 if read is None else read.scale,
        )

    def _reading(self, read: Attention | None) -> Sequence[Matrix]:
        if read is None:
            return [Matrix(), Matrix(), Matrix()]
        parts = [self._packed(read.query), self._packed(read.key, read.value), self._packed(read.output)]
        return [part.matrix for part in parts]

    def _packed(self, *parts: Linear) -> Packed:
        packed = Packed(parts, self._format)
        self._kept.append(packed)
        return packed

    def _norm(self, norm: Norm) -> _Norm:
        return _Norm(address(self._numbers(norm.weight)), address(self._numbers(norm.bias)), norm.epsilon)

    def _numbers(self, array: object) -> Floats:
        numbers = float32(array)  # type: ignore[arg-type]
        self._kept.append(numbers)
        return numbers


def _longest(stack: StackWeights) -> int | None:
    return None if stack.positions is None else len(stack.positions)
