"""A memory that is read and written by weightings over its slots: Graves, Wayne and Danihelka 2014, arXiv:1410.5401.

Every function serves all heads and rows at once. Equation numbers are the paper's.

Shapes: B sentences or hypotheses, H heads, L slots of the memory (the paper's N), W width of a slot (its M),
J = 2 r + 1 shifts by -r ... r slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_NORM = 1e-8  # of key times slot, so that an empty slot is like nothing instead of undefined
SMALLEST_WEIGHT = 1e-8  # keeps the logarithm finite


@dataclass(frozen=True)
class Address:
    """What the heads say about where they look."""

    keys: Tensor  # [B, H, W]
    strength: Tensor  # [B, H, 1] beta > 0
    gate: Tensor  # [B, H, 1] g, from 0 (stay with the last weighting) to 1 (go by content)
    shift: Tensor  # [B, H, J] s, a distribution over -r ... r
    sharpness: Tensor  # [B, H, 1] gamma >= 1


def head_weights(address: Address, previous: Tensor, memory: Tensor) -> Tensor:
    """The whole path of the paper's Figure 2: content, interpolation, shift, sharpening.

    previous [B, H, L], memory [B, L, W] -> [B, H, L], each a distribution over the slots.
    """
    content = content_weights(address.keys, address.strength, memory)
    gated = previous + address.gate * (content - previous)  # equation 7
    return sharpen(shift_around(gated, address.shift), address.sharpness)


def content_weights(keys: Tensor, strength: Tensor, memory: Tensor) -> Tensor:
    """softmax of strength x cosine of key and slot, equations 5 and 6. [B, H, W], [B, L, W] -> [B, H, L]"""
    products = torch.bmm(keys, memory.transpose(1, 2))
    key_norms = torch.linalg.vector_norm(keys, dim=-1, keepdim=True)  # [B, H, 1]
    slot_norms = torch.linalg.vector_norm(memory, dim=-1)[:, None]  # [B, 1, L]
    return torch.softmax(strength * products / (key_norms * slot_norms + SMALLEST_NORM), dim=-1)


def shift_around(weights: Tensor, shift: Tensor) -> Tensor:
    """Circular convolution, equation 8: slot i receives the share s(d) of slot i - d. [B, H, L], [B, H, J] -> [B, H, L]"""
    farthest = shift.size(-1) // 2
    shifted = torch.zeros_like(weights)
    for step, share in enumerate(torch.split(shift, 1, dim=-1), start=-farthest):
        shifted = shifted + share * torch.roll(weights, step, dims=-1)
    return shifted


def sharpen(weights: Tensor, sharpness: Tensor) -> Tensor:
    """weights^gamma, normalised: equation 9, through logarithms, so that no power underflows to a sum of zero."""
    return torch.softmax(sharpness * torch.log(weights + SMALLEST_WEIGHT), dim=-1)


def write(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """All heads erase, then all add: equations 3 and 4, of which the order of the heads is no part.

    memory [B, L, W], weights [B, H, L], erase and add [B, H, W] -> [B, L, W]
    """
    one = memory.new_ones(())
    for weight, vector in zip(torch.split(weights, 1, dim=1), torch.split(erase, 1, dim=1)):
        memory = memory * torch.baddbmm(one, weight.transpose(1, 2), vector, alpha=-1)  # 1 - w(i) e
    return torch.baddbmm(memory, weights.transpose(1, 2), add)


def read(memory: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of the slots, equation 2. [B, L, W], [B, H, L] -> [B, H, W]"""
    return torch.bmm(weights, memory)
