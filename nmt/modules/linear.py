"""A linear layer that meets few shapes where shapes are expensive.

On a CPU oneDNN makes a kernel for every shape of a product in bf16, which takes longer than a small product itself and
keeps a quarter of a megabyte. Batches have other shapes each time. So rows of zeros are added, an eighth at most, up to
one of few numbers. Products in float32 come from another library, which has kernels for any shape.

Shapes: n rows, R rows with those that were added, K inputs, N outputs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def eighths(number: int) -> int:
    """Of eight numbers between each power of two and the next, the first that is not below."""
    step = max(8, (1 << (number - 1).bit_length()) // 16)
    return -(-number // step) * step


def shapes_are_expensive(x: Tensor) -> bool:
    """Whether a product with x would be in bf16 on a CPU, by autocast."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()


def with_room(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """[n, K] -> [R, K] in another type"""
    count = rows.size(0)
    if (size := eighths(count)) == count:
        return rows.to(dtype)
    roomy = rows.new_empty(size, rows.size(1), dtype=dtype)
    roomy[:count] = rows
    roomy[count:] = 0
    return roomy


class Linear(nn.Linear):
    """torch's own, except where shapes are expensive."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]"""
        if not shapes_are_expensive(x) or x.numel() == 0:
            return super().forward(x)
        result: Tensor = _RoomyLinear.apply(x, self.weight, self.bias, torch.get_autocast_dtype("cpu"))  # type: ignore[no-untyped-call]
        return result


class _RoomyLinear(torch.autograd.Function):
    """All three products have R rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        roomy, weights = with_room(x.reshape(-1, x.size(-1)), dtype), weight.to(dtype)
        ctx.save_for_backward(roomy, weights)
        ctx.shape, ctx.dtypes = x.shape, (x.dtype, weight.dtype)
        product = F.linear(roomy, weights, None if bias is None else bias.to(dtype))
        return product[: x.numel() // x.size(-1)].view(*x.shape[:-1], -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        roomy, weights = ctx.saved_tensors
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        type_of_x, type_of_weight = ctx.dtypes
        gradient = with_room(upstream[0].reshape(-1, weights.size(0)), weights.dtype)  # [R, N]
        count = upstream[0].numel() // weights.size(0)
        return (
            (gradient @ weights)[:count].to(type_of_x).view(ctx.shape) if of_x else None,
            (gradient.t() @ roomy).to(type_of_weight) if of_weight else None,
            gradient.sum(0, dtype=torch.float32).to(type_of_weight) if of_bias else None,
            None,
        )
