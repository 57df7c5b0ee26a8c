"""Layers of the Transformer that run as a whole in C (nmt.native.layers): those made of the paper's parts, once their linear
layers are packed.

Shapes: B sentences, K beam, S source positions, M real ones of all sentences, D model width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.modules.attention import CausalSelfAttention, CrossAttention, ScaledDotProduct, SelfAttention, by_equation_1
from nmt.modules.feed_forward import FeedForward
from nmt.modules.native import SlotCache, SlotSight
from nmt.modules.packed import PackedLinear
from nmt.modules.residual import PostNorm, PreNorm, Residual
from nmt.modules.sight import Sight
from nmt.native import layers as native


def layer_of(look: nn.Module, look_residual: Residual, feed: nn.Module, feed_residual: Residual) -> native.Layer | None:
    """A layer of an encoder; None where one of the parts is not known to C."""
    own, fed = _look(look, look_residual, SelfAttention), _feed(feed, feed_residual)
    if own is None or fed is None or not _alike(look_residual, feed_residual):
        return None
    assert isinstance(look, SelfAttention)
    return native.Layer(own, None, fed, norm_first=_first(look_residual), heads=look.sizes.num_heads)


def target_layer_of(
    look: nn.Module,
    look_residual: Residual,
    read: nn.Module,
    read_residual: Residual,
    feed: nn.Module,
    feed_residual: Residual,
) -> native.Layer | None:
    """A layer of a decoder; None where one of the parts is not known to C."""
    own, fed = _look(look, look_residual, CausalSelfAttention), _feed(feed, feed_residual)
    memory = _read(read, read_residual)
    if own is None or memory is None or fed is None or not _alike(look_residual, read_residual, feed_residual):
        return None
    assert isinstance(look, SelfAttention)
    return native.Layer(own, memory, fed, norm_first=_first(look_residual), heads=look.sizes.num_heads)


def step(
    layer: native.Layer, x: Tensor, past: SlotCache, sight: SlotSight, memory: tuple[Tensor, Tensor], seen: Sight
) -> tuple[Tensor, SlotCache]:
    """One position of each hypothesis, [B, K, D] -> [B, K, D]"""
    grown, result = past.with_room(), x.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    steps = grown.length + 1
    layer.step(result, (grown.keys, grown.values, grown.places), steps, sight.slots, memory, seen.bias)
    return result, grown.at(steps)


def encode(layers: Sequence[native.Layer], x: Tensor, lengths: Tensor) -> Tensor:
    """All layers of an encoder, without the padding of x [B, S, D], which becomes zero."""
    real = torch.arange(x.size(1))[None, :] < lengths[:, None]  # [B, S]
    offsets, rows = F.pad(lengths.cumsum(0), (1, 0)), x[real].float()  # rows: [M, D]
    for layer in layers:
        layer.encode(rows, offsets)
    states = rows.new_zeros(x.shape)
    states[real] = rows
    return states


def _look(module: nn.Module, residual: Residual, kind: type[SelfAttention]) -> native.Attention | None:
    if type(module) is not kind or module.rotation is not None:
        return None
    return _attention(module, module.projection, residual)


def _read(module: nn.Module, residual: Residual) -> native.Attention | None:
    return _attention(module, module.query, residual) if type(module) is CrossAttention else None


def _attention(module: nn.Module, project: nn.Module, residual: Residual) -> native.Attention | None:
    assert isinstance(module, SelfAttention | CrossAttention)
    sizes, attend, norm = module.sizes, module.attend, _norm(residual)
    fits = sizes.d_k == sizes.d_v and sizes.keys == sizes.d_model
    if not (fits and by_equation_1(attend) and norm is not None):
        return None
    assert isinstance(attend, ScaledDotProduct)
    output = module.output
    if not (isinstance(project, PackedLinear) and isinstance(output, PackedLinear)):
        return None
    return native.Attention(project.packed, output.packed, norm, attend.scale(sizes.d_k))


def _feed(module: nn.Module, residual: Residual) -> native.FeedForward | None:
    norm = _norm(residual)
    if type(module) is not FeedForward or norm is None:
        return None
    inner, outer = module.inner, module.outer
    if not (isinstance(inner, PackedLinear) and isinstance(outer, PackedLinear)):
        return None
    return native.FeedForward(inner.packed, outer.packed, norm)


def _norm(residual: Residual) -> nn.LayerNorm | None:
    norm = residual.norm
    known = type(norm) is nn.LayerNorm and norm.weight is not None and norm.bias is not None
    return norm if known and norm.weight.dtype == torch.float32 else None  # type: ignore[return-value]


def _alike(*residuals: Residual) -> bool:
    kinds = {type(residual) for residual in residuals}
    return len(kinds) == 1 and kinds <= {PostNorm, PreNorm}


def _first(residual: Residual) -> bool:
    return type(residual) is PreNorm
