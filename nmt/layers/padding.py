"""Masks for padding and future positions, and the removal of padding.

Shapes: B sentences, S source positions, T target positions, M real positions of a batch, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding_bias(lengths: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
    """Return [B, longest], 0 at real positions and -inf at padding, to add to attention scores."""
    padding = torch.arange(longest, device=lengths.device)[None, :] >= lengths[:, None]
    return torch.zeros(padding.shape, dtype=dtype, device=lengths.device).masked_fill_(padding, float("-inf"))


def causal_bias(longest: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return [longest, longest], -inf at keys (columns) later than the query (row), 0 elsewhere."""
    return torch.full((longest, longest), float("-inf"), dtype=dtype, device=device).triu_(1)


def real_rows(padded: Tensor, lengths: Tensor, offsets: Tensor, count: int) -> Tensor:
    """Select the real positions, in batch order: [B, T, ...] -> [M, ...]

    ``offsets`` [B + 1] and ``count`` (= M) are known on the CPU, so there is no synchronization with the device.
    """
    num_sentences, longest = padded.shape[:2]
    # Position m of sentence b has the index b * T + m - offsets[b] in the flattened batch.
    starts = torch.arange(num_sentences, device=padded.device) * longest - offsets[:-1]
    index = torch.arange(count, device=padded.device) + torch.repeat_interleave(starts, lengths, output_size=count)
    return padded.flatten(0, 1).index_select(0, index)
