"""Convolutions over sentences: a linear map of the inputs around a position, or before it, that padding cannot reach.

Shapes: B sentences, N hypotheses, T positions, C channels, O outputs, k kernel width, r dilation. An output depends on k
inputs that stand r apart; the first of them is (k - 1) r positions before the last.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def windows(x: Tensor, kernel: int, dilation: int) -> Tensor:
    """[B, T + (k - 1) r, C] -> [B, T, k C]: beside each other what stands r apart, the earliest first.

    One matrix product over windows is faster on a CPU than torch's convolution, most of all in the backward pass.
    """
    count = x.size(1) - (kernel - 1) * dilation
    return torch.cat([x[:, tap * dilation : tap * dilation + count] for tap in range(kernel)], dim=2)


class Convolution(nn.Module):
    """``linear`` maps [..., k C] to [..., O]; how it is normalised and initialised is its own affair."""

    def __init__(self, linear: nn.Module, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.linear, self.kernel, self.dilation = linear, kernel, dilation
        self.past = (kernel - 1) * dilation  # how far the first input stands before the last


class SameConvolution(Convolution):
    """y_i = W [x_{i - r(k-1)/2}; ...; x_{i + r(k-1)/2}] + b, with zeros in place of what is no part of the sentence."""

    def __init__(self, linear: nn.Module, kernel: int, dilation: int = 1) -> None:
        assert kernel % 2, "an even kernel has no position in its middle"
        super().__init__(linear, kernel, dilation)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """x [B, T, C], padding [B, T, 1] True where a sentence has ended -> [B, T, O] (padding may hold anything)"""
        side = self.past // 2
        around = F.pad(x.masked_fill(padding, 0.0), (0, 0, side, side))  # [B, T + (k - 1) r, C]
        return self.linear(windows(around, self.kernel, self.dilation))


class CausalConvolution(Convolution):
    """y_i = W [x_{i - r(k-1)}; ...; x_i] + b, with zeros before the first position; none looks at padding behind it."""

    def forward(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x [N, T, C] after the inputs ``before`` (None: nothing was) -> [N, T, O], and the inputs before the next position.

        One position costs the same wherever it stands: k inputs are multiplied, (k - 1) r copied.
        """
        seen = F.pad(x, (0, 0, self.past, 0)) if before is None else torch.cat([before, x], dim=1)
        return self.linear(windows(seen, self.kernel, self.dilation)), seen[:, x.size(1) :]

    def empty_cache(self, rows: int, channels: int, like: Tensor) -> Tensor:
        """[N, (k - 1) r, C] the inputs before the first position, in the type and on the device of ``like``."""
        return like.new_zeros(rows, self.past, channels)
