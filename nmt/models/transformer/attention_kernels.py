"""The choice of a kernel for scaled dot-product attention.

On a CPU, sentences shorter than ``LONG`` use separate matrix products, which are faster there than the fused kernel,
especially in the backward pass. On a GPU a fused kernel runs; batches without padding use a variable-length kernel.

Shapes: B sentences, H heads, T queries, S keys, M positions of all sentences, concatenated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.devices.faults import FastPath, avoids
from nmt.devices.kinds import device_of
from nmt.layers.linear import with_few_kernels
from nmt.models.transformer.attention_probe import kernel_agrees
from nmt.models.transformer.mask import FlatMask, Mask, WeightRecord

# From this many positions, the fused kernel of a CPU is faster than separate products, forward and backward.
LONG = {torch.float32: 256, torch.bfloat16: 1024}

WIDEST_FLAT_HEAD = 256

Formula = Callable[[Tensor, Tensor, Tensor, Mask], Tensor]


def attended(
    attend: Callable[..., Tensor],
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Mask,
    record: WeightRecord = None,
) -> Tensor:
    """Call ``attend`` in float32 if bf16 would compile a oneDNN kernel for each shape of a batch."""
    return with_few_kernels(functools.partial(attend, mask=mask, record=record), queries, keys, values)


def by_kernel(
    formula: Formula, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, *, scale: float, dropout: float
) -> Tensor:
    """Compute softmax(scale Q K^T) V by the fastest kernel; ``formula`` computes it by separate products.

    queries [B, H, T, d_k], keys [B, H, S, d_k], values [B, H, S, d_v] -> [B, H, T, d_v]. ``dropout`` applies to the weights.
    """
    if isinstance(mask, FlatMask):
        return _without_padding(queries, keys, values, mask, scale)
    short = min(queries.size(-2), keys.size(-2)) < LONG.get(queries.dtype, math.inf)
    if queries.device.type == "cpu" and (short or dropout > 0.0):  # with dropout the fused kernel is slower
        return formula(queries, keys, values, mask)
    if avoids(queries.device, FastPath.fused_attention):
        return formula(queries, keys, values, mask)
    bias = None if mask.bias is None else mask.bias.to(queries.dtype)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, dropout_p=dropout, scale=scale)


def supports_flat_batches(device: torch.device, width: int) -> bool:
    """Whether the variable-length kernel can run for heads of this width: on Ampere or newer, under autocast in half
    precision, if it computes the formula there."""
    if not device_of(device).attends_flat() or avoids(device, FastPath.flat_attention):
        return False
    if not torch.is_autocast_enabled(device.type):
        return False
    from torch.nn.attention import varlen

    dtype = torch.get_autocast_dtype(device.type)
    halves = dtype in (torch.bfloat16, torch.float16)
    return halves and kernel_agrees(varlen.varlen_attn, device, dtype, width)


def supports_flat_heads(d_k: int, d_v: int) -> bool:
    """Whether the variable-length kernel supports these head widths."""
    return d_k == d_v and d_k % 8 == 0 and d_k <= WIDEST_FLAT_HEAD


def _without_padding(queries: Tensor, keys: Tensor, values: Tensor, mask: FlatMask, scale: float) -> Tensor:
    """queries [1, H, M, d], keys and values [1, H, M', d] -> [1, H, M, d]"""
    from torch.nn.attention import varlen  # imports torch's compiler, which takes two seconds

    output = varlen.varlen_attn(
        queries[0].transpose(0, 1),
        keys[0].transpose(0, 1),
        values[0].transpose(0, 1),
        mask.queries.boundaries,
        mask.keys.boundaries,
        mask.queries.longest,
        mask.keys.longest,
        scale=scale,
        window_size=(mask.behind, mask.ahead),
    )
    assert isinstance(output, Tensor)
    return output.transpose(0, 1)[None]
