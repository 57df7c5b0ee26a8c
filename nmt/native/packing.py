"""Matrices in the order in which the C code reads them, in float32 or in fewer bytes.

A packed product is made row by row: the result of a row does not depend on the others, to the last bit. In int8 every
output of the matrix has a scale of its own, and so has every row that it is multiplied with.

Shapes: B sentences, n rows, K inputs, N outputs.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.choices import NumberFormat
from nmt.errors import DataError
from nmt.native.library import at, built, processor
from nmt.trees import RowTree

PANEL = 16  # outputs side by side
_LINE = 64  # bytes


_NUMBERS = {NumberFormat.float32: 0, NumberFormat.bfloat16: 1, NumberFormat.float16: 2, NumberFormat.int8: 3}


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


def packs(device: torch.device) -> bool:
    """Whether products with packed matrices are to be had there, and faster than torch's."""
    return device.type == "cpu" and processor() not in (None, "portable")


def rounds_rows(number_format: NumberFormat) -> bool:
    """Whether products with such a matrix round the rows too: a last bit of a row can then change a result by far more."""
    return number_format is NumberFormat.int8 or (number_format is NumberFormat.bfloat16 and processor() == "amx")


class Packed:
    """A matrix [N, K] and a bias [N], as a function [..., K] -> [..., N] of float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None, number_format: NumberFormat) -> None:
        found = built()
        weight = weight.detach().float().contiguous()
        if not torch.isfinite(weight).all():
            raise DataError(
                "the model's weights are not numbers (NaN or infinite): its checkpoint is damaged or diverged"
            )
        outputs, inputs = weight.shape
        room = -(-outputs // PANEL) * PANEL
        self.bytes = found.packed_bytes(outputs, inputs, _NUMBERS[number_format])
        self.panels = aligned(self.bytes)
        whole = number_format is NumberFormat.int8
        self.scales = torch.zeros(room) if whole else None
        self.shifts = torch.zeros(room, dtype=torch.int32) if whole else None
        self.bias = None if bias is None else F.pad(bias.detach().float(), (0, room - outputs))
        number = _NUMBERS[number_format]
        found.pack(at(weight), outputs, inputs, number, at(self.panels), at(self.scales), at(self.shifts))
        self.outputs, self.inputs, self.format = outputs, inputs, number_format
        self.matrix = Matrix(at(self.panels), at(self.scales), at(self.shifts), at(self.bias), outputs, inputs, number)
        self._multiply, self.address = found.multiply, ctypes.addressof(self.matrix)

    def __call__(self, x: Tensor, relu: bool = False) -> Tensor:
        """``relu``: nothing below zero."""
        rows = x.reshape(-1, self.inputs)
        if rows.dtype != torch.float32 or rows.stride(1) != 1:
            rows = rows.float().contiguous()
        y = rows.new_empty(rows.size(0), self.outputs)
        self._multiply(self.address, rows.data_ptr(), rows.stride(0), rows.size(0), y.data_ptr(), self.outputs, relu)
        return y.view(*x.shape[:-1], self.outputs)

    def __deepcopy__(self, memo: dict[int, object]) -> Packed:
        return self  # it never changes


@dataclass
class OwnMatrices(RowTree):
    """For each of B sentences a matrix of its own [N, K] and a bias [N], all in one format."""

    panels: Tensor  # [B, bytes]
    scales: Tensor | None  # [B, N and what fills up the last panel]
    shifts: Tensor | None
    bias: Tensor  # -inf where a sentence has fewer outputs
    outputs: int
    inputs: int
    format: NumberFormat

    @classmethod
    def of(cls, packed: Packed, outputs: Tensor, absent: Tensor) -> OwnMatrices:
        """These outputs [B, N] of a matrix, of which some are ``absent`` [B, N]."""
        found = built()
        sentences, count = outputs.shape
        number, room = _NUMBERS[packed.format], -(-count // PANEL) * PANEL
        whole = packed.format is NumberFormat.int8
        panels = torch.zeros(sentences, found.packed_bytes(count, packed.inputs, number), dtype=torch.uint8)
        scales = torch.zeros(sentences, room) if whole else None
        shifts = torch.zeros(sentences, room, dtype=torch.int32) if whole else None
        bias = torch.zeros(sentences, room)
        outputs, absent = outputs.contiguous(), absent.contiguous()
        for b in range(sentences):
            found.select_outputs(
                packed.address,
                outputs[b].data_ptr(),
                absent[b].data_ptr(),
                count,
                panels[b].data_ptr(),
                None if scales is None else scales[b].data_ptr(),
                None if shifts is None else shifts[b].data_ptr(),
                bias[b].data_ptr(),
            )
        return cls(panels, scales, shifts, bias, count, packed.inputs, packed.format)

    def __call__(self, x: Tensor) -> Tensor:
        """[B * n, K] -> [B * n, N]"""
        found = built()
        sentences, number = self.panels.size(0), _NUMBERS[self.format]
        first = Matrix(
            at(self.panels), at(self.scales), at(self.shifts), at(self.bias), self.outputs, self.inputs, number
        )
        rows = x.float().contiguous()
        y = rows.new_empty(rows.size(0), self.outputs)
        count = rows.size(0) // sentences
        found.multiply_own(
            ctypes.addressof(first), self.panels.size(1), sentences, rows.data_ptr(), count, y.data_ptr()
        )
        return y


def aligned(count: int) -> Tensor:
    """So many zero bytes that begin where a line of the cache does."""
    memory = torch.zeros(count + _LINE, dtype=torch.uint8)
    start = -memory.data_ptr() % _LINE
    return memory[start : start + count]
