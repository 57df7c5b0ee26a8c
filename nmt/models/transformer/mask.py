"""Which positions an attention may see.

Shapes: T queries, S keys, B sentences, K beam, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Places:
    """Where the queries and the keys of a self-attention stand in their sequence."""

    queries: Tensor  # [T]; in a step [B, K]
    keys: Tensor  # [S]; in a step [1, S]
    bound: int  # all of them are below it


@dataclass(frozen=True)
class Mask:
    """Which keys may be seen. It is made once a call, for all layers of a stack."""

    bias: Tensor | None  # added to the scores [B, H, T, S]: -inf forbids; None: everything may be seen
    places: Places | None = None  # None where they mean nothing: the queries and keys of cross-attention


def whole_sequence(length: int, device: torch.device) -> Places:
    """Every position of a sequence is a query and a key."""
    positions = torch.arange(length, device=device)
    return Places(positions, positions, length)
