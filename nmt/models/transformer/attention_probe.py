"""A test of the kernel for attention without padding: whether it computes the formula on this device.

A kernel that compiles and runs may still be wrong on some cards and for some head widths: torch's issue 173469 reports NaN
on AMD's. Therefore it is tried once a process before it is trusted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
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
    """Return the largest difference of outputs and gradients, relative to the largest value; NaN if one is not finite."""
    key_lengths = QUERIES if window != (-1, -1) else KEYS  # windows are for self-attention
    draw = torch.Generator().manual_seed(width)
    sizes = [sum(QUERIES), sum(key_lengths), sum(key_lengths)]
    parts = [torch.randn(size, NUM_HEADS, width, generator=draw).to(dtype) for size in sizes]
    weights = torch.randn(sizes[0], NUM_HEADS, width, generator=draw).to(dtype)
    ends = [torch.tensor([0, *lengths]).cumsum(0).to(torch.int32) for lengths in (QUERIES, key_lengths)]

    def results(attend: Callable[[list[Tensor]], Tensor], where: torch.device, kind: torch.dtype) -> list[Tensor]:
        leaves = [part.to(where, kind).requires_grad_() for part in parts]
        output = attend(leaves)
        gradients = torch.autograd.grad((output * weights.to(where, kind)).sum(), leaves)
        return [result.detach().float().cpu() for result in (output, *gradients)]

    longest = max(QUERIES), max(key_lengths)
    there = results(
        lambda leaves: kernel(
            *leaves, *(end.to(device) for end in ends), *longest, scale=width**-0.5, window_size=window
        ),
        device,
        dtype,
    )
    here = results(lambda leaves: _formula(leaves, key_lengths, window), torch.device("cpu"), torch.float32)
    differences = [float((part - exact).abs().max() / exact.abs().max()) for part, exact in zip(there, here)]
    return max(differences) if all(value == value for value in differences) else float("nan")


def _formula(leaves: list[Tensor], key_lengths: tuple[int, ...], window: tuple[int, int]) -> Tensor:
    """Attend within each sentence: softmax(Q K^T / sqrt(d)) V over the keys inside the window."""
    queries, *of_keys = leaves[0], leaves[1], leaves[2]
    outputs = []
    rows, columns = torch.split(queries, list(QUERIES)), [torch.split(part, list(key_lengths)) for part in of_keys]
    for query, key, value in zip(rows, *columns):
        scores = torch.einsum("qhd,khd->hqk", query, key) * query.size(-1) ** -0.5
        distance = torch.arange(len(key))[None, :] - torch.arange(len(query))[:, None]  # of a key behind its query
        behind, ahead = window
        outside = (distance < -behind if behind >= 0 else torch.zeros_like(distance, dtype=torch.bool)) | (
            distance > ahead if ahead >= 0 else torch.zeros_like(distance, dtype=torch.bool)
        )
        weights = scores.masked_fill(outside, float("-inf")).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, value))
    return torch.cat(outputs)
