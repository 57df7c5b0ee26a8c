"""Attention without padding: the sentences of a batch stand one after the other in one long row.

Everything else in a layer works on single positions and does not notice. Attention alone has to know where sentences
begin; torch has a kernel for that on GPUs, in half precision, without dropout inside.

Shapes: B sentences, M positions of all of them, H heads.
"""

from __future__ import annotations

import functools
import inspect

import torch
from torch import Tensor

from nmt.modules.sight import FlatSight

WIDEST_HEAD = 256


def attend_flat(queries: Tensor, keys: Tensor, values: Tensor, sight: FlatSight, scale: float) -> Tensor:
    """queries [1, H, M, d], keys and values [1, H, M', d] -> [1, H, M, d]"""
    from torch.nn.attention import varlen  # brings torch's compiler with it: two seconds that no other path should wait

    attended = varlen.varlen_attn(
        queries[0].transpose(0, 1),
        keys[0].transpose(0, 1),
        values[0].transpose(0, 1),
        sight.queries.boundaries,
        sight.keys.boundaries,
        sight.queries.longest,
        sight.keys.longest,
        scale=scale,
        window_size=(sight.behind, sight.ahead),
    )
    assert isinstance(attended, Tensor)
    return attended.transpose(0, 1)[None]


def kernel_runs(device: torch.device) -> bool:
    """Whether the kernel can be used: from Ampere on, where autocast computes in half precision."""
    if device.type != "cuda" or not torch.is_autocast_enabled("cuda") or not _has_windows():
        return False
    half = torch.get_autocast_dtype("cuda") in (torch.bfloat16, torch.float16)
    return half and torch.cuda.get_device_capability(device) >= (8, 0)


@functools.cache
def _has_windows() -> bool:
    """Older kernels know causality alone."""
    from torch.nn.attention import varlen

    return "window_size" in inspect.signature(varlen.varlen_attn).parameters


def head_fits(d_k: int, d_v: int) -> bool:
    """Whether the kernel knows heads of such widths."""
    return d_k == d_v and d_k % 8 == 0 and d_k <= WIDEST_HEAD
