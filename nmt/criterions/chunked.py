"""Functions of the scores over a vocabulary, computed for a few rows at a time.

Scores are much larger than the results of a loss. They are freed after each chunk and recomputed in the backward pass. The
fused cross-entropy needs no recomputation, but supports only cross-entropy and the divergence of two passes.

Shapes: M rows (target positions), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Rows of a chunk: few on a CPU, so that their scores stay in the cache; many elsewhere, for large kernels.
CHUNK_ROWS = {"cpu": 256}
CHUNK_ROWS_ELSEWHERE = 2048


def by_rows(function: Callable[..., Tensor], *columns: Tensor) -> Tensor:
    """``function(*columns)`` of tensors with M rows each; its result has M rows, and depends on them row by row."""
    size = CHUNK_ROWS.get(columns[0].device.type, CHUNK_ROWS_ELSEWHERE)
    chunks = list(zip(*(torch.split(column, size) for column in columns)))
    if len(chunks) == 1 or not torch.is_grad_enabled():
        return torch.cat([function(*chunk) for chunk in chunks])
    parts: list[Tensor] = [checkpoint(function, *chunk, use_reentrant=False) for chunk in chunks]
    return torch.cat(parts)


def log_probabilities(logits: Tensor) -> Tensor:
    """Return natural log-probabilities over the last axis, in float32 or wider."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def smoothed_nll(predicted: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Return the smoothed cross-entropy [M] of targets [M] under log-probabilities [M, V]."""
    nll = -predicted.gather(1, targets[:, None]).squeeze(1)
    if label_smoothing == 0.0:
        return nll
    return (1 - label_smoothing) * nll - label_smoothing * predicted.mean(1)


def cross_entropy_of(target: Tensor, predicted: Tensor) -> Tensor:
    """Return - sum_k exp(target_k) * predicted_k of log-probabilities, over the last axis; 0 * -inf counts as 0."""
    return -(target.exp() * predicted.masked_fill(target == -torch.inf, 0.0)).sum(-1)


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return KL(first || second) + KL(second || first) of log-probabilities over the last axis, with -inf - -inf = 0."""
    impossible = (first == -torch.inf) & (second == -torch.inf)
    difference = first.masked_fill(impossible, 0.0) - second.masked_fill(impossible, 0.0)
    return ((first.exp() - second.exp()) * difference).sum(-1)
