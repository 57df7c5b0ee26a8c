"""A test of the kernel for attention without padding: whether it computes the formula on this device.

A kernel that compiles and runs may still be wrong on some cards and for some head widths: torch's issue 173469 reports NaN
on AMD's. Therefore it is tried once a process before it is trusted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmt.devices import is_shortage

logger = logging.getLogger("nmt.models")

# Lengths of sentences, as queries and as keys, and windows: everything, the past alone, and neighbors.
QUERIES, KEYS = (3, 1, 70), (5, 2, 66)
WINDOWS = ((-1, -1), (-1, 0), (2, 1))
NUM_HEADS = 2
TOLERANCE = 0.02  # of the largest value; bfloat16 rounds to 0.4 %

# Queries, keys, values [M, H, d], boundaries of queries and keys [B + 1], longest of both, scale, window -> [M, H, d]
Kernel = Callable[..., Any]
Attention = tuple[Callable[..., Tensor], torch.device, torch.dtype]  # of queries, keys and values; where it is computed

_verdicts: dict[tuple[Kernel, torch.device, torch.dtype, int], bool] = {}  # torch.compile traces no functools.cache


def kernel_agrees(kernel: Kernel, device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether outputs and gradients of the kernel are those of the formula for heads of this width. If not, a warning says
    so, and batches keep their padding. Each kernel is tried once a process."""
    key = kernel, device, dtype, width
    if key not in _verdicts:
        _verdicts[key] = _try(*key)
    return _verdicts[key]


def _try(kernel: Kernel, device: torch.device, dtype: torch.dtype, width: int) -> bool:
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
            differences = [_difference(kernel, device, dtype, width, window) for window in WINDOWS]
            worst = max(differences) if all(map(math.isfinite, differences)) else math.nan
    except Exception as error:  # whatever a library does wrong, there is another way
        if is_shortage(error):  # which says nothing about the kernel
            raise
        fault = f"{type(error).__name__}: {error}".partition("\n")[0]
    else:
        if worst <= TOLERANCE:  # false if it is NaN
            return True
        fault = f"it differs from the formula by {worst:.3g} of the largest value"
    logger.warning(
        "the kernel for attention without padding fails on %s for heads of width %d (%s); batches keep their padding",
        device,
        width,
        fault,
    )
    return False


def _difference(kernel: Kernel, device: torch.device, dtype: torch.dtype, width: int, window: tuple[int, int]) -> float:
    key_lengths = QUERIES if window != (-1, -1) else KEYS  # windows are for self-attention
    draw = torch.Generator().manual_seed(width)
    sizes = [sum(QUERIES), sum(key_lengths), sum(key_lengths)]
    parts = [torch.randn(size, NUM_HEADS, width, generator=draw).to(dtype) for size in sizes]
    weights = torch.randn(sizes[0], NUM_HEADS, width, generator=draw).to(dtype)
    ends = [torch.tensor([0, *lengths]).cumsum(0).to(torch.int32) for lengths in (QUERIES, key_lengths)]
    bounds = *(end.to(device) for end in ends), max(QUERIES), max(key_lengths)

    def attend(*leaves: Tensor) -> Tensor:
        return kernel(*leaves, *bounds, scale=width**-0.5, window_size=window)

    exact = partial(_formula, key_lengths, window), torch.device("cpu"), torch.float32
    return largest_difference(parts, weights, (attend, device, dtype), exact)


def largest_difference(parts: Sequence[Tensor], weights: Tensor, kernel: Attention, formula: Attention) -> float:
    """Return the largest difference of outputs and gradients of two attentions, relative to the largest value; NaN if one is
    not finite.

    ``parts``: queries, keys and values; ``weights``: of the outputs, in the sum whose gradients are compared.
    """

    def results(attend: Callable[..., Tensor], where: torch.device, dtype: torch.dtype) -> list[Tensor]:
        leaves = [part.to(where, dtype).requires_grad_() for part in parts]
        output = attend(*leaves)
        gradients = torch.autograd.grad((output * weights.to(where, dtype)).sum(), leaves)
        return [result.detach().cpu().double() for result in (output, *gradients)]

    pairs = zip(results(*kernel), results(*formula))
    differences = [float((part - exact).abs().max() / exact.abs().max()) for part, exact in pairs]
    return max(differences) if all(map(math.isfinite, differences)) else math.nan


def _formula(key_lengths: tuple[int, ...], window: tuple[int, int], *leaves: Tensor) -> Tensor:
    """Attend within each sentence: softmax(Q K^T / sqrt(d)) V over the keys inside the window."""
    outputs, lengths = [], (QUERIES, key_lengths, key_lengths)
    behind, ahead = (size if size >= 0 else math.inf for size in window)
    for query, key, value in zip(*(torch.split(leaf, list(own)) for leaf, own in zip(leaves, lengths))):
        scores = torch.einsum("qhd,khd->hqk", query, key) * query.size(-1) ** -0.5
        distance = torch.arange(len(key))[None, :] - torch.arange(len(query))[:, None]  # of a key behind its query
        outside = (distance < -behind) | (distance > ahead)
        weights = scores.masked_fill(outside, float("-inf")).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, value))
    return torch.cat(outputs)
