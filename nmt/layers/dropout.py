"""Dropout with cheap random bits on the CPU.

torch draws a Bernoulli number for each element, which costs more than a layer norm on a CPU. Here each element takes one
random byte of torch's generator, so ``torch.manual_seed`` reproduces it. Other devices use torch's kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zero elements with probability ``p`` and scale the rest, in training mode; the identity otherwise."""

    def __init__(self, p: float) -> None:
        super().__init__()
        assert 0.0 <= p < 1.0
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        return _dropped(None, x, self.p) if _has_cheap_bytes(x) else F.dropout(x, self.p)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + dropout(x), in one pass on the CPU."""
        if not self.training or self.p == 0.0 or not _has_cheap_bytes(x) or x.dtype != residual.dtype:
            return residual + self(x)
        return _dropped(residual, x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class LayerDropout(nn.Module):
    """Skip whole layers in training: Fan et al. 2020 (LayerDrop), arXiv:1909.11556, section 3.

    A skipped layer is computed all the same: all ranks then have the same graph, with zero gradients of its parameters.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, of_layer: Tensor) -> Tensor:
        """Return the result of a layer, or its input ``x``."""
        if not self.training or self.p == 0.0:
            return of_layer
        return torch.where(torch.rand((), device=x.device) < self.p, x, of_layer)


def _has_cheap_bytes(x: Tensor) -> bool:
    """Whether to draw bytes for x; compiled code has a cheap generator."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def random_bytes(count: int, p: float) -> tuple[Tensor, int]:
    """Return ``count`` random bytes and the threshold: an element whose byte is below it is dropped.

    A byte can represent only probabilities n / 256. The threshold is one of the two integers next to 256 p, drawn so that
    the expected probability is p. Kept elements are scaled by the drawn probability, so that the expected
    output is the input.
    """
    words = torch.empty(count // 8 + 2, dtype=torch.int64).random_(-(2**63), None)
    fraction = (int(words[-1]) & 0xFFFFFF) / 2**24
    return words.view(torch.uint8)[:count], min(int(256 * p + fraction), 255)


def _mask(like: Tensor, data: Tensor, threshold: int) -> Tensor:
    """Return 1 at kept elements, in the data type of ``like``: multiplication is faster than with booleans."""
    return torch.ge(data.view(like.shape), threshold, out=torch.empty_like(like, memory_format=torch.contiguous_format))


def _scale(threshold: int) -> float:
    return 256 / (256 - threshold)


def _dropped(residual: Tensor | None, x: Tensor, p: float) -> Tensor:
    return _ByteDropout.apply(residual, x, *random_bytes(x.numel(), p))  # type: ignore[no-untyped-call]


class _ByteDropout(torch.autograd.Function):
    """dropout(x), or residual + dropout(x) in one pass. Saves one byte per element for the backward pass."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, x: Tensor, data: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(data)
        ctx.threshold = threshold
        kept = _mask(x, data, threshold)
        if residual is None:
            return kept.mul_(x).mul_(_scale(threshold))
        return torch.addcmul(residual, x, kept, value=_scale(threshold))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (data,) = ctx.saved_tensors
        gradient = _mask(gradients[0], data, ctx.threshold).mul_(gradients[0]).mul_(_scale(ctx.threshold))
        return gradients[0] if ctx.needs_input_grad[0] else None, gradient, None, None
