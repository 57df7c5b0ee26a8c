"""Rotary positions: Su et al. 2021, arXiv:2104.09864.

Shapes: B sentences, K beam, H heads, T positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt.layers.positions import SinusoidalPositions
from nmt.models.transformer.mask import Places


class Rotary(nn.Module):
    """Turns each pair (x_2i, x_2i+1) of a query or key by m theta_i, m its position, theta_i = 10000^(-2i / d_k).

    Equation 34. The product of a query and a key then depends on their distance alone. The angles are those of the
    sinusoidal positions of width d_k.
    """

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.angles = SinusoidalPositions(d_k)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """[B, H, T, d_k] -> [B, H, T, d_k]"""
        angles = self.angles.at(places.queries, places.bound).unsqueeze(-3)  # [1, T, d_k]; in a step [B, 1, K, d_k]
        sine, cosine = angles[..., 0::2], angles[..., 1::2]
        first, second = x[..., 0::2], x[..., 1::2]  # [B, H, T, d_k/2]
        turned = torch.stack([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
        return turned.flatten(-2).to(x.dtype)
