"""Operations that torch has only for accelerators, as formulas: cells of recurrent layers, normalization, attention.

Arguments are tensors of the CPU: those of cells by position, others by the names of torch's schemas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    gates = sum((bias for bias in (input_bias, hidden_bias) if bias is not None), inputs + hidden)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * cell + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(
    hidden: Tensor | None, carried: Tensor | None, before: Tensor, after: Tensor, work: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = work.chunk(4, 1)
    output, bent = torch.zeros_like(after) if hidden is None else hidden, after.tanh()
    slope = output * o * (1 - bent * bent) + (0 if carried is None else carried)
    of_gates = [slope * g * i * (1 - i), slope * before * f * (1 - f), slope * i * (1 - g * g)]
    gates = torch.cat([*of_gates, output * bent * o * (1 - o)], 1)
    return gates, slope * f, gates.sum(0) if has_bias else None


def _gru_cell(
    inputs: Tensor, hidden: Tensor, state: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    inputs = inputs if input_bias is None else inputs + input_bias
    hidden = hidden if hidden_bias is None else hidden + hidden_bias
    (ir, iz, i), (hr, hz, h) = inputs.chunk(3, 1), hidden.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (i + r * h).tanh()
    return n + z * (state - n), torch.cat([r, z, n, state, h], 1)


def _gru_cell_backward(
    gradient: Tensor, work: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    r, z, n, state, h = work.chunk(5, 1)
    of_n = gradient * (1 - z) * (1 - n * n)
    of_z, of_r = gradient * (state - n) * z * (1 - z), of_n * h * r * (1 - r)
    inputs, hidden = torch.cat([of_r, of_z, of_n], 1), torch.cat([of_r, of_z, of_n * r], 1)
    return inputs, hidden, gradient * z, *((inputs.sum(0), hidden.sum(0)) if has_bias else (None, None))


# Recurrent layers that torch chooses by device, and has no kernel for on a CPU.
CELLS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}


def _rms_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    axes = tuple(range(-len(normalized_shape), 0))
    gradient, scale = grad_out.float(), rstd.float()
    normalized = input.float() * scale
    inner = gradient if weight is None else gradient * weight.float()
    of_input = scale * (inner - normalized * (inner * normalized).mean(axes, keepdim=True))
    of_weight = None
    if weight is not None and output_mask[1]:
        of_weight = (gradient * normalized).sum_to_size(tuple(normalized_shape)).to(weight.dtype)
    return of_input.to(input.dtype), of_weight


# Softmax that autocast fuses with a conversion


def _softmax(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, dim, half_to_float: function(self.float() if half_to_float else self, dim)


def _softmax_backward(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
        return function(grad_output, output, dim, grad_output.dtype).to(input_dtype)

    return compute


# Attention. Legend: B sentences, H heads, T queries, S keys, d width of a head; [B, H, T, d] or, without padding, [M, H, d].


def _probabilities(
    query: Tensor, key: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return them, and the logarithms of the sums, in float32."""
    scores = query.float() @ key.float().transpose(-1, -2) * scale
    if bias is not None:
        scores = scores + bias.float()
    if causal:
        T, S = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(T, S, dtype=torch.bool).triu(1 + S - T), -math.inf)
    return scores.softmax(-1).nan_to_num(0.0), scores.logsumexp(-1)


def _attention_gradients(
    query: Tensor, key: Tensor, value: Tensor, gradient: Tensor, kept: Tensor, probabilities: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of query, key, value and scores. ``kept`` is 1 / (1 - p), or 0 for a dropped probability."""
    gradient = gradient.float()
    of_value = (probabilities * kept).transpose(-1, -2) @ gradient
    of_probabilities = gradient @ value.float().transpose(-1, -2) * kept
    of_scores = probabilities * (of_probabilities - (of_probabilities * probabilities).sum(-1, keepdim=True))
    of_query, of_key = of_scores @ key.float() * scale, of_scores.transpose(-1, -2) @ query.float() * scale
    return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype), of_scores


def _kept(shape: torch.Size, dropout: float, seed: Tensor, sentence: int = 0) -> Tensor:
    if not dropout:
        return torch.ones(1)
    draw = torch.Generator().manual_seed(int(seed.flatten()[0]) + sentence)
    return (torch.rand(shape, generator=draw) >= dropout).float() / (1 - dropout)


def _as_kernels_store(tensor: Tensor) -> Tensor:
    """Let memory have the order [B, T, H, d]."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def _require_half(*parts: Tensor) -> None:
    """Refuse what the kernels refuse."""
    for part in parts:
        if part.dtype not in (torch.float16, torch.bfloat16):
            raise RuntimeError(f"FlashAttention only support fp16 and bf16 data type, not {part.dtype}")
        if part.stride(-1) != 1:
            raise RuntimeError("Input tensor must have contiguous last dimension")


def _seed() -> tuple[Tensor, Tensor]:
    return torch.randint(2**40, ()), torch.zeros((), dtype=torch.int64)


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    **_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    probabilities, sums = _probabilities(query, key, attn_bias, is_causal, scale or query.size(-1) ** -0.5)
    seed, offset = _seed()
    output = (probabilities * _kept(probabilities.shape, dropout_p, seed)) @ value.float()
    return _as_kernels_store(output.to(query.dtype)), sums, seed, offset


def _efficient_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    philox_seed: Tensor,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool,
    scale: float | None,
    **_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    bias = attn_bias if attn_bias is not None and attn_bias.numel() else None
    scale = scale or query.size(-1) ** -0.5
    probabilities, _sums = _probabilities(query, key, bias, is_causal, scale)
    kept = _kept(probabilities.shape, dropout_p, philox_seed)
    *gradients, of_scores = _attention_gradients(query, key, value, grad_out_, kept, probabilities, scale)
    of_bias = None if bias is None or not grad_input_mask[3] else of_scores.sum_to_size(bias.shape).to(bias.dtype)
    of_query, of_key, of_value = map(_as_kernels_store, gradients)
    return of_query, of_key, of_value, of_bias


def _of_halves(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Any, ...]:
    """The kernels of FlashAttention and of cuDNN, which return more. FlashAttention has no bias."""
    _require_half(query, key, value)
    output, sums, seed, offset = _efficient(query, key, value, **{"attn_bias": None, **options})
    return output, sums, None, None, query.size(2), key.size(2), seed, offset, torch.empty(0)


def _of_halves_backward(grad_out: Tensor, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    mask = (True, True, True, False)
    return _efficient_backward(grad_out, grad_input_mask=mask, **{"attn_bias": None, **options})[:3]


def _window(T: int, S: int, left: int | None, right: int | None, causal: bool) -> Tensor:
    """Return the additive mask of a window; the last query sees the last key."""
    query, key = torch.arange(T)[:, None] + (S - T), torch.arange(S)[None, :]
    hidden = torch.zeros(T, S, dtype=torch.bool)
    right = 0 if causal else right
    if left is not None and left >= 0:
        hidden |= key < query - left
    if right is not None and right >= 0:
        hidden |= key > query + right
    return torch.zeros(T, S).masked_fill(hidden, -math.inf)


def _segments(query: Tensor, cum_seq_q: Tensor, cum_seq_k: Tensor, options: dict[str, Any]) -> Any:
    """Yield slices of queries and keys, the additive mask and the seed of each sentence."""
    for index in range(len(cum_seq_q) - 1):
        queries = slice(int(cum_seq_q[index]), int(cum_seq_q[index + 1]))
        keys = slice(int(cum_seq_k[index]), int(cum_seq_k[index + 1]))
        T, S = queries.stop - queries.start, keys.stop - keys.start
        if T:
            left, right = options.get("window_size_left"), options.get("window_size_right")
            yield queries, keys, _window(T, S, left, right, options["is_causal"]), index


def _flat_parts(query: Tensor, key: Tensor, value: Tensor, queries: slice, keys: slice) -> list[Tensor]:
    return [query[queries].transpose(0, 1), key[keys].transpose(0, 1), value[keys].transpose(0, 1)]


def _without_padding(
    query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Tensor, cum_seq_k: Tensor, scale: float | None, **options: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    _require_half(query, key, value)
    if cum_seq_q.dtype is not torch.int32 or cum_seq_k.dtype is not torch.int32:
        raise RuntimeError("cu_seqlens must have dtype int32")
    output, (seed, offset) = torch.zeros_like(query), _seed()
    for queries, keys, mask, index in _segments(query, cum_seq_q, cum_seq_k, options):
        q, k, v = _flat_parts(query, key, value, queries, keys)
        probabilities, _ = _probabilities(q, k, mask, False, scale or query.size(-1) ** -0.5)
        kept = _kept(probabilities.shape, options["dropout_p"], seed, index)
        output[queries] = ((probabilities * kept) @ v.float()).to(query.dtype).transpose(0, 1)
    return output, torch.zeros(query.size(1), query.size(0)), seed, offset, torch.empty(0)


def _without_padding_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    scale: float | None,
    rng_state: Tensor,
    **options: Any,
) -> tuple[Tensor, ...]:
    gradients = [torch.zeros_like(part) for part in (query, key, value)]
    scale = scale or query.size(-1) ** -0.5
    for queries, keys, mask, index in _segments(query, cum_seq_q, cum_seq_k, options):
        q, k, v = _flat_parts(query, key, value, queries, keys)
        probabilities, _ = _probabilities(q, k, mask, False, scale)
        kept = _kept(probabilities.shape, options["dropout_p"], rng_state, index)
        parts = _attention_gradients(q, k, v, grad_out[queries].transpose(0, 1), kept, probabilities, scale)
        for gradient, where, part in zip(gradients, (queries, keys, keys), parts):
            gradient[where] += part.transpose(0, 1)
    return tuple(gradients)


def _native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    kept = (
        torch.ones_like(input, dtype=torch.bool) if train is False else torch.rand_like(input, dtype=torch.float) >= p
    )
    return input * kept / (1 - p) if train is not False else input.clone(), kept


_SOFTMAX = (("_softmax", torch._softmax), ("_log_softmax", torch._log_softmax))

# Operations that a CUDA GPU has, and a CPU lacks or computes otherwise.
OF_CUDA: dict[str, Callable[..., Any]] = {
    **{name: _softmax(lambda part, dim, f=f: f(part, dim, False)) for name, f in _SOFTMAX},  # type: ignore[misc]
    "_softmax_backward_data": _softmax_backward(torch._softmax_backward_data),
    "_log_softmax_backward_data": _softmax_backward(torch._log_softmax_backward_data),
    "_fused_rms_norm_backward": _rms_norm_backward,
    "_scaled_dot_product_efficient_attention": _efficient,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "_scaled_dot_product_flash_attention": _of_halves,
    "_scaled_dot_product_flash_attention_backward": _of_halves_backward,
    "_scaled_dot_product_cudnn_attention": _of_halves,
    "_scaled_dot_product_cudnn_attention_backward": _of_halves_backward,
    "_flash_attention_forward": _without_padding,
    "_flash_attention_backward": _without_padding_backward,
    "native_dropout": _native_dropout,
}
