"""Weights of the native engine, in the order in which C reads them (nmt/native/panels.h), in float32 or quantized.

A model is packed when it is loaded, or once by nmt-export. The file of an export is mapped: a start copies nothing, and
processes share its memory. The order is the same on all processors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from nmt.config.choices import NumberFormat
from nmt.data.vocabulary import Floats
from nmt.errors import DataError
from nmt.models.transformer.weights import Array, LinearWeights
from nmt.native.library import address, built
from nmt.storage.arrays import Numbers, is_mapped
from nmt.storage.tensor_file import mapped_tensors

PANEL = 16  # outputs in a panel
_LINE = 64  # bytes of a cache line
_NUMBERS = {NumberFormat.float32: 0, NumberFormat.bfloat16: 1, NumberFormat.float16: 2, NumberFormat.int8: 3}


class Matrix(ctypes.Structure):
    """``Matrix`` of native.h."""

    _fields_ = (
        *[(name, ctypes.c_void_p) for name in ("panels", "scales", "shifts", "bias")],
        *[(name, ctypes.c_int64) for name in ("outputs", "inputs", "format")],
    )


class PackedMatrix:
    """A matrix that all adapters of a base model share, while any of them is used."""

    def __init__(self, arrays: Sequence[Numbers | None]) -> None:
        self.arrays = arrays


_shared = WeakValueDictionary[tuple[str, NumberFormat, str], PackedMatrix]()


class Packing:
    """Packs the parts of a model. ``arrays`` has the result by name, and keeps it alive while C has the addresses."""

    def __init__(self, number_format: NumberFormat, base: str | None = None) -> None:
        """``base``: checksum of the file of parameters, whose matrices are shared with its adapters; None: they are not."""
        self.number_format = number_format
        self.arrays = dict[str, Numbers]()
        self._base, self._kept = base, list[PackedMatrix]()

    def matrix(self, name: str, *parts: LinearWeights) -> Matrix:
        """Pack one or several linear maps with the same input into one matrix; their outputs are concatenated."""
        outputs, inputs = sum(len(part.weight) for part in parts), parts[0].weight.shape[1]
        number, room = _NUMBERS[self.number_format], whole_panels(outputs)
        of_base = all(is_mapped(array) for part in parts for array in (part.weight, part.bias) if array is not None)
        key = None if self._base is None or not of_base else (self._base, self.number_format, name)
        if key is not None and (packed := _shared.get(key)) is not None:
            self._kept.append(packed)
            return Matrix(*map(address, packed.arrays), outputs, inputs, number)
        arrays: list[Numbers | None] = [None] * 4
        arrays[0] = self._array(f"{name}.panels", np.uint8, built().packed_bytes(outputs, inputs, number))
        if self.number_format is NumberFormat.int8:
            arrays[1] = self._array(f"{name}.scales", np.float32, room)
            arrays[2] = self._array(f"{name}.shifts", np.int32, room)
        if any(part.bias is not None for part in parts):
            arrays[3] = self._array(f"{name}.bias", np.float32, room)
        matrix = Matrix(*map(address, arrays), outputs, inputs, number)
        self._fill(matrix, parts, arrays[3])
        if key is not None:
            self._kept.append(_shared.setdefault(key, PackedMatrix(arrays)))
        return matrix

    def numbers(self, name: str, array: Array) -> Floats:
        """Keep an array in float32."""
        self.arrays[name] = float32(array)
        return self.arrays[name]

    def _array(self, name: str, kind: Any, count: int) -> Numbers:
        self.arrays[name] = aligned(count * np.dtype(kind).itemsize).view(kind)
        return self.arrays[name]

    def _fill(self, matrix: Matrix, parts: tuple[LinearWeights, ...], bias: Floats | None) -> None:
        weight = float32(parts[0].weight if len(parts) == 1 else np.concatenate([part.weight for part in parts]))
        if not np.isfinite(weight).all():
            raise DataError("the model has NaN or infinite weights: its checkpoint is damaged or its training diverged")
        built().pack(address(weight), *weight.shape, matrix.format, matrix.panels, matrix.scales, matrix.shifts)
        if bias is not None:
            own = [np.zeros(len(part.weight)) if part.bias is None else part.bias for part in parts]
            bias[: matrix.outputs] = np.concatenate(own)


class MappedWeights(Packing):
    """Packed weights of a file. Its parts need shapes only."""

    def __init__(self, number_format: NumberFormat, path: Path) -> None:
        super().__init__(number_format)
        self._path, self._stored = path, mapped_tensors(path)

    def numbers(self, name: str, array: Array) -> Floats:
        return self._array(name, np.float32, array.size).reshape(array.shape)

    def _array(self, name: str, kind: Any, count: int) -> Numbers:
        stored = self._stored.get(name)
        if stored is None or stored.dtype != kind or stored.size != count:
            raise DataError(f"{self._path} is damaged: {name} is missing or has another size; export the model again")
        self.arrays[name] = stored
        return stored

    def _fill(self, matrix: Matrix, parts: tuple[LinearWeights, ...], bias: Floats | None) -> None:
        """The file holds the numbers."""


def whole_panels(outputs: int) -> int:
    """Return the number of outputs with those that fill up the last panel."""
    return -(-outputs // PANEL) * PANEL


def float32(array: Array) -> Floats:
    """Return an array as contiguous float32, without a copy if it is already."""
    return np.ascontiguousarray(array, dtype=np.float32)


def aligned(count: int) -> npt.NDArray[np.uint8]:
    """Return ``count`` zero bytes that begin at a cache line."""
    memory = np.zeros(count + _LINE, dtype=np.uint8)
    start = -int(memory.ctypes.data) % _LINE
    return memory[start : start + count]
