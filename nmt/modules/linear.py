"""A linear layer that meets few shapes where shapes are expensive.

On a CPU oneDNN makes a kernel for every shape of a product in bf16, which takes longer than a small product itself and
keeps a quarter of a megabyte. Batches have other shapes each time. So rows of zeros are added, from 64 rows on an
eighth at most, up to one of few numbers. Products in float32 come from another library, which has kernels for any shape.

Shapes: n rows, R rows with those that were added, K inputs, N outputs.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.modules.plain import Function, computes_in_half


def eighths(number: int) -> int:
    """Of eight numbers between each power of two and the next, the first that is not below."""
    step = max(8, (1 << (number - 1).bit_length()) // 16)
    return -(-number // step) * step


def eighths_below(number: int) -> int:
    """Of the same numbers the last that is not above; from 16 on."""
    return number if eighths(number) == number else eighths(number) - max(8, (1 << (number - 1).bit_length()) // 16)


def shapes_are_expensive(x: Tensor) -> bool:
    """Whether a product with x would be in bf16 on a CPU, by autocast."""
    autocast = x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and x.dtype != torch.float64
    return autocast and not torch.compiler.is_compiling()


def with_room(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """[n, K] -> [R, K] in another type"""
    added = eighths(rows.size(0)) - rows.size(0)
    rows = rows.to(dtype)
    return F.pad(rows, (0, 0, 0, added)) if added else rows


class Linear(nn.Linear):
    """torch's own, except where shapes are expensive."""

    def plain(self) -> Function:
        if computes_in_half(self.weight.device):
            return self.forward
        return partial(F.linear, weight=self.weight, bias=self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]"""
        if not shapes_are_expensive(x) or x.numel() == 0:
            return super().forward(x)
        rows = x.reshape(-1, x.size(-1))
        product = super().forward(with_room(rows, torch.get_autocast_dtype("cpu")))
        return product[: rows.size(0)].view(*x.shape[:-1], -1)
