"""Linear maps: one with few shapes for bf16 on a CPU, and one with normalized weights.

On a CPU, oneDNN compiles a bf16 kernel for every shape of a product. That takes longer than a small product and 256 KiB of
memory. Batches vary in shape, so rows of zeros are added, at most an eighth from 64 rows on, to limit the number of shapes.
float32 products use a library whose kernels support any shape.

oneDNN has no bf16 kernel for a CPU without AVX-512, and torch's loops take 10 to 100 times as long as a float32 product.
There the product is in float32, with operands and result rounded to bf16.

Shapes: n rows, R rows with added ones, K or I inputs, N or O outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def eighths(number: int) -> int:
    """Round up to one of eight numbers between each power of two and the next, and to a multiple of 8."""
    step = max(8, (1 << (number - 1).bit_length()) // 16)
    return -(-number // step) * step


def eighths_below(number: int) -> int:
    """Round down to a result of ``eighths``; ``number`` is at least 16."""
    return number if eighths(number) == number else eighths(number) - max(8, (1 << (number - 1).bit_length()) // 16)


def shapes_are_expensive(x: Tensor) -> bool:
    """Whether a product with x is in bf16 on a CPU, by autocast."""
    autocast = x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and x.dtype != torch.float64
    return autocast and not torch.compiler.is_compiling()


def with_few_kernels(formula: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Call ``formula(*tensors)``, in float32 if shapes are expensive: for products over sentence positions."""
    if not shapes_are_expensive(tensors[0]):
        return formula(*tensors)
    with torch.autocast("cpu", enabled=False):
        return formula(*(tensor.float() for tensor in tensors))


def with_zero_rows(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert and add rows of zeros: [n, K] -> [R, K]"""
    added = eighths(rows.size(0)) - rows.size(0)
    rows = rows.to(dtype)
    return F.pad(rows, (0, 0, 0, added)) if added else rows


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


@functools.cache
def has_bf16_kernels() -> bool:
    """Whether oneDNN supports bf16 on this CPU."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def half_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``F.linear`` outside of autocast, fast for bf16 too: [n, K] -> [n, N] in the data type of x."""
    if x.device.type != "cpu" or x.dtype is not torch.bfloat16 or has_bf16_kernels():
        return F.linear(x, weight, bias)
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


class Linear(nn.Linear):
    """``nn.Linear`` with few shapes if shapes are expensive."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]"""
        if not shapes_are_expensive(x) or x.numel() == 0:
            return super().forward(x)
        rows, dtype = x.reshape(-1, x.size(-1)), torch.get_autocast_dtype("cpu")
        if not has_bf16_kernels():
            bias = None if self.bias is None else self.bias.to(dtype)
            with torch.autocast("cpu", enabled=False):
                return half_product(rows.to(dtype), self.weight.to(dtype), bias).view(*x.shape[:-1], -1)
        product = super().forward(with_zero_rows(rows, dtype))
        return product[: rows.size(0)].view(*x.shape[:-1], -1)


Module = TypeVar("Module", bound=nn.Module)


class NormalizedLinear(nn.Module):
    """A linear map whose weights for each output are w = g v / |v|: Salimans and Kingma 2016, arXiv:1602.07868, equation 2.

    v is initialized from N(0, ``std``^2), g to |v|, so that w = v, and the bias to 0. [..., I] -> [..., O]
    """

    undecayed = ("length",)  # the gain of a norm

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs).normal_(std=std))
        self.length = nn.Parameter(self.direction.detach().norm(dim=1, keepdim=True))  # [O, 1]
        self.bias = nn.Parameter(torch.zeros(outputs))

    @property
    def weight(self) -> Tensor:
        """[O, I], computed at each access."""
        return self.direction * (self.length / self.direction.norm(dim=1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class FixedLinear(nn.Module):
    """A linear map with the current weights of a normalized one, without parameters."""

    def __init__(self, linear: NormalizedLinear) -> None:
        super().__init__()
        self.weight = linear.weight.detach()
        self.bias = linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def with_fixed_weights(module: Module) -> Module:
    """Return the module for inference, with each normalized weight computed once; everything else is shared.

    For one position, normalizing a matrix can cost more than multiplying with it.
    """
    if isinstance(module, NormalizedLinear):
        return cast(Module, FixedLinear(module))
    twin = object.__new__(type(module))  # copy.copy fails for a module with sharded parameters
    twin.__dict__.update(module.__dict__)
    twin._modules = {
        name: None if child is None else with_fixed_weights(child) for name, child in module._modules.items()
    }
    return twin
