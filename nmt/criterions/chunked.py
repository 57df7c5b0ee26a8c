"""Functions of the scores over a vocabulary, row by row, without ever holding the scores of all rows.

What a loss makes of an output layer's scores is small, the scores are not: they are computed for a few rows at a time,
dropped, and computed again in the backward pass. The fused cross-entropy needs no second time, but knows cross-entropy and
the divergence of two passes alone.

Shapes: M rows (target positions), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Rows of a chunk: on a CPU their scores should stay in the cache, elsewhere the kernels should be large.
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
    """Natural logarithms over the last axis, in float32 at least."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def smoothed_nll(predicted: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """[M] the cross-entropy of targets [M] under log-probabilities [M, V], smoothed as ``smoothed_cross_entropy`` does."""
    nll = -predicted.gather(1, targets[:, None]).squeeze(1)
    if label_smoothing == 0.0:
        return nll
    return (1 - label_smoothing) * nll - label_smoothing * predicted.mean(1)


def cross_entropy_of(target: Tensor, predicted: Tensor) -> Tensor:
    """- sum_k exp(target_k) * predicted_k over the last axis, of log-probabilities; 0 * -inf counts as 0."""
    return -(target.exp() * predicted.masked_fill(target == -torch.inf, 0.0)).sum(-1)


def symmetric_divergence(one: Tensor, other: Tensor) -> Tensor:
    """KL(one || other) + KL(other || one) over the last axis, of log-probabilities; what both rule out counts as 0."""
    impossible = (one == -torch.inf) & (other == -torch.inf)
    difference = one.masked_fill(impossible, 0.0) - other.masked_fill(impossible, 0.0)
    return ((one.exp() - other.exp()) * difference).sum(-1)
