"""Linear maps: one that meets few shapes where shapes are expensive, and one with normalised weights.

On a CPU oneDNN makes a kernel for every shape of a product in bf16, which takes longer than a small product itself and
keeps a quarter of a megabyte. Batches have other shapes each time. So rows of zeros are added, from 64 rows on an
eighth at most, up to one of few numbers. Products in float32 come from another library, which has kernels for any shape.

A CPU without AVX-512 has no such kernel for bf16 at all: torch's own loops take ten to a hundred times as long as a product
in float32. There the operands and the result are rounded to bf16, as ever, and the product itself is in float32.

Shapes: n rows, R rows with those that were added, K or I inputs, N or O outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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


def with_few_kernels(formula: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """``formula(*tensors)``, in float32 where shapes are expensive: for products as wide as sentences are long."""
    if not shapes_are_expensive(tensors[0]):
        return formula(*tensors)
    with torch.autocast("cpu", enabled=False):
        return formula(*(tensor.float() for tensor in tensors))


def with_room(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """[n, K] -> [R, K] in another type"""
    added = eighths(rows.size(0)) - rows.size(0)
    rows = rows.to(dtype)
    return F.pad(rows, (0, 0, 0, added)) if added else rows


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


@functools.cache
def bf16_kernels_there() -> bool:
    """Whether the library for products in bf16 supports this CPU."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def half_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear`` outside of autocast, by a fast kernel for bf16 too: [n, K] -> [n, N] in the type of x."""
    if x.device.type != "cpu" or x.dtype is not torch.bfloat16 or bf16_kernels_there():
        return F.linear(x, weight, bias)
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


class Linear(nn.Linear):
    """torch's own, except where shapes are expensive."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]"""
        if not shapes_are_expensive(x) or x.numel() == 0:
            return super().forward(x)
        rows, dtype = x.reshape(-1, x.size(-1)), torch.get_autocast_dtype("cpu")
        if not bf16_kernels_there():
            bias = None if self.bias is None else self.bias.to(dtype)
            with torch.autocast("cpu", enabled=False):
                return half_product(rows.to(dtype), self.weight.to(dtype), bias).view(*x.shape[:-1], -1)
        product = super().forward(with_room(rows, dtype))
        return product[: rows.size(0)].view(*x.shape[:-1], -1)


Module = TypeVar("Module", bound=nn.Module)


class NormalisedLinear(nn.Module):
    """A linear map whose weights for each output are w = g v / |v|: Salimans and Kingma 2016, arXiv:1602.07868, equation 2.

    v starts at N(0, ``std``^2), g at |v|, so that w starts as v; the bias starts at 0. [..., I] -> [..., O]
    """

    undecayed = ("length",)  # the gain of a norm

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs).normal_(std=std))
        self.length = nn.Parameter(self.direction.detach().norm(dim=1, keepdim=True))  # [O, 1]
        self.bias = nn.Parameter(torch.zeros(outputs))

    @property
    def weight(self) -> Tensor:
        """[O, I], computed anew each time."""
        return self.direction * (self.length / self.direction.norm(dim=1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class FixedLinear(nn.Module):
    """The linear map that a normalised one is at this moment. No parameters: it does not learn."""

    def __init__(self, linear: NormalisedLinear) -> None:
        super().__init__()
        self.weight = linear.weight.detach()
        self.bias = linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def with_fixed_weights(module: Module) -> Module:
    """The same module for inference, with each normalised weight computed once; it shares everything else.

    Where a step computes one position, normalising a matrix can cost more than multiplying with it.
    """
    if isinstance(module, NormalisedLinear):
        return cast(Module, FixedLinear(module))
    twin = object.__new__(type(module))  # copy.copy would make a new module of one whose parameters are divided
    twin.__dict__.update(module.__dict__)
    twin._modules = {
        name: None if child is None else with_fixed_weights(child) for name, child in module._modules.items()
    }
    return twin
