"""Matrices in the order in which the C code reads them (nmt/native/panels.h), in float32 or in fewer bytes.

A product is made row by row: the result of a row does not depend on other rows, to the last bit. In int8 every output of a
matrix has a scale of its own, and so has every row that it is multiplied with.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nmt.config.choices import NumberFormat
from nmt.errors import DataError
from nmt.models.transformer.weights import Array, Linear
from nmt.native.library import address, built

PANEL = 16  # outputs side by side
_LINE = 64  # bytes of a cache line
_NUMBERS = {NumberFormat.float32: 0, NumberFormat.bfloat16: 1, NumberFormat.float16: 2, NumberFormat.int8: 3}

Floats = npt.NDArray[np.float32]


class Matrix(ctypes.Structure):
    """As native.h has it."""

    _fields_ = (
        ("panels", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("shifts", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("outputs", ctypes.c_int64),
        ("inputs", ctypes.c_int64),
        ("format", ctypes.c_int64),
    )


class Packed:
    """One or several linear maps of the same input, one below the other, as one matrix."""

    def __init__(self, parts: Sequence[Linear], number_format: NumberFormat) -> None:
        weight = float32(parts[0].weight if len(parts) == 1 else np.concatenate([part.weight for part in parts]))
        if not np.isfinite(weight).all():
            raise DataError(
                "the model's weights are not numbers (NaN or infinite): its checkpoint is damaged or diverged"
            )
        found, number = built(), _NUMBERS[number_format]
        outputs, inputs = weight.shape
        room, whole = -(-outputs // PANEL) * PANEL, number_format is NumberFormat.int8
        panels = aligned(found.packed_bytes(outputs, inputs, number))
        scales = np.zeros(room, dtype=np.float32) if whole else None
        shifts = np.zeros(room, dtype=np.int32) if whole else None
        bias = _joined([part.bias for part in parts], [part.weight.shape[0] for part in parts], room)
        found.pack(address(weight), outputs, inputs, number, address(panels), address(scales), address(shifts))
        self.matrix = Matrix(address(panels), address(scales), address(shifts), address(bias), outputs, inputs, number)
        self.bytes = panels.nbytes
        self._kept = (panels, scales, shifts, bias)  # they live as long as their addresses are used


class PartsOfOutput:
    """For each of B sentences some of the outputs of a matrix, as a matrix of its own."""

    def __init__(self, whole: Packed, lists: Sequence[npt.NDArray[np.integer]]) -> None:
        found, m = built(), whole.matrix
        self.longest = max(map(len, lists))
        size = found.packed_bytes(self.longest, m.inputs, m.format)
        room, is_int8 = -(-self.longest // PANEL) * PANEL, bool(m.scales)
        panels = aligned(size * len(lists)).reshape(len(lists), size)
        scales = np.zeros((len(lists), room), dtype=np.float32) if is_int8 else None
        shifts = np.zeros((len(lists), room), dtype=np.int32) if is_int8 else None
        bias = np.zeros((len(lists), room), dtype=np.float32)
        self.matrices = (Matrix * len(lists))()
        for b, outputs in enumerate(lists):
            wanted = np.zeros(self.longest, dtype=np.int64)
            wanted[: len(outputs)] = outputs
            absent = (np.arange(self.longest) >= len(outputs)).astype(np.uint8)
            own = [None if part is None else address(part[b]) for part in (panels, scales, shifts, bias)]
            found.select_outputs(ctypes.addressof(m), address(wanted), address(absent), self.longest, *own)
            self.matrices[b] = Matrix(*own, self.longest, m.inputs, m.format)
        self._kept = (panels, scales, shifts, bias, whole)


def float32(array: Array) -> Floats:
    """The same numbers in float32, one after the other; itself, if it is so."""
    return np.ascontiguousarray(array, dtype=np.float32)


def aligned(count: int) -> npt.NDArray[np.uint8]:
    """So many zero bytes that begin where a line of the cache does."""
    memory = np.zeros(count + _LINE, dtype=np.uint8)
    start = -int(memory.ctypes.data) % _LINE
    return memory[start : start + count]


def _joined(biases: Sequence[Array | None], sizes: Sequence[int], room: int) -> Floats | None:
    if all(bias is None for bias in biases):
        return None
    whole = np.zeros(room, dtype=np.float32)
    for bias, end, size in zip(biases, np.cumsum(sizes), sizes):
        if bias is not None:
            whole[end - size : end] = bias
    return whole
