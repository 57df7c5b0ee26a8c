"""What is padding, and how to leave it behind.

Shapes: B sentences, S source positions, T target positions, M real positions of a batch, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding_bias(lengths: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
    """[B, longest] 0 at the real positions, -inf at padding: added to attention scores."""
    padding = torch.arange(longest, device=lengths.device)[None, :] >= lengths[:, None]
    return torch.zeros(padding.shape, dtype=dtype, device=lengths.device).masked_fill_(padding, float("-inf"))


def causal_bias(longest: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[longest, longest] -inf where a query (row) would see a later key (column), 0 elsewhere."""
    return torch.full((longest, longest), float("-inf"), dtype=dtype, device=device).triu_(1)


def real_rows(padded: Tensor, lengths: Tensor, offsets: Tensor, count: int) -> Tensor:
    """[B, T, ...] -> [M, ...]: the real positions only, in batch order.

    ``offsets`` [B + 1] and ``count`` (= M) come with the batch, so nothing waits for the device.
    """
    num_sentences, longest = padded.shape[:2]
    # Position m of sentence b stands at b * T + m - offsets[b] of the flattened batch.
    starts = torch.arange(num_sentences, device=padded.device) * longest - offsets[:-1]
    index = torch.arange(count, device=padded.device) + torch.repeat_interleave(starts, lengths, output_size=count)
    return padded.flatten(0, 1).index_select(0, index)
