"""Which kernel computes scaled dot-product attention, chosen in one place.

On a CPU the formula is written out: at the length of sentences batched products are faster than the fused kernel, most of
all in the backward pass; from ``LONG`` positions on they no longer are. On a GPU a fused kernel runs, another one for
batches without padding.

Shapes: B sentences, H heads, T queries, S keys, M positions of all sentences one after the other.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.layers.linear import with_few_kernels
from nmt.models.transformer.mask import FlatMask, Mask, Weights

# Positions from which on a CPU's fused kernel is faster, forward and backward, than the products written out.
LONG = {torch.float32: 256, torch.bfloat16: 1024}

WIDEST_FLAT_HEAD = 256

Formula = Callable[[Tensor, Tensor, Tensor, Mask], Tensor]


def attended(
    attend: Callable[..., Tensor], queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: Weights = None
) -> Tensor:
    """What a kind of attention gives (``Attend``), in float32 where products in bf16 would need a kernel for each batch."""
    return with_few_kernels(functools.partial(attend, mask=mask, record=record), queries, keys, values)


def by_kernel(
    formula: Formula, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, *, scale: float, dropout: float
) -> Tensor:
    """softmax(scale Q K^T) V by the fastest kernel there is for it; ``formula`` is the same written out.

    queries [B, H, T, d_k], keys [B, H, S, d_k], values [B, H, S, d_v] -> [B, H, T, d_v]. ``dropout``: of the weights, now.
    """
    if isinstance(mask, FlatMask):
        return _without_padding(queries, keys, values, mask, scale)
    short = min(queries.size(-2), keys.size(-2)) < LONG.get(queries.dtype, math.inf)
    if queries.device.type == "cpu" and (short or dropout > 0.0):  # with dropout its fused kernel is slower too
        return formula(queries, keys, values, mask)
    bias = None if mask.bias is None else mask.bias.to(queries.dtype)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, dropout_p=dropout, scale=scale)


def knows_flat_batches(device: torch.device) -> bool:
    """Whether there is a kernel for batches without padding: from Ampere on, where autocast computes in half precision."""
    if device.type != "cuda" or not torch.is_autocast_enabled("cuda") or not _has_windows():
        return False
    half = torch.get_autocast_dtype("cuda") in (torch.bfloat16, torch.float16)
    return half and torch.cuda.get_device_capability(device) >= (8, 0)


def knows_flat_heads(d_k: int, d_v: int) -> bool:
    """Whether that kernel knows heads of such widths."""
    return d_k == d_v and d_k % 8 == 0 and d_k <= WIDEST_FLAT_HEAD


def _without_padding(queries: Tensor, keys: Tensor, values: Tensor, mask: FlatMask, scale: float) -> Tensor:
    """queries [1, H, M, d], keys and values [1, H, M', d] -> [1, H, M, d]"""
    from torch.nn.attention import varlen  # brings torch's compiler with it: two seconds that no other path should wait

    attended = varlen.varlen_attn(
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
    assert isinstance(attended, Tensor)
    return attended.transpose(0, 1)[None]


@functools.cache
def _has_windows() -> bool:
    """Older kernels know causality alone."""
    from torch.nn.attention import varlen

    return "window_size" in inspect.signature(varlen.varlen_attn).parameters
