"""Convolutions over sentences, whose outputs do not depend on padding.

Shapes: B sentences, N hypotheses, T positions, C channels, O outputs, k kernel width, r dilation. An output depends on k
inputs at a distance of r positions; the first is (k - 1) r positions before the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.interface import DecoderState


def windows(x: Tensor, kernel: int, dilation: int) -> Tensor:
    """[B, T + (k - 1) r, C] -> [B, T, k C]: the k inputs of each output, concatenated, the earliest first.

    On a CPU, one matrix product over windows is faster than torch's convolution, especially in the backward pass.
    """
    count = x.size(1) - (kernel - 1) * dilation
    return torch.cat([x[:, tap * dilation : tap * dilation + count] for tap in range(kernel)], dim=2)


class Convolution(nn.Module):
    """A convolution; ``linear`` maps [..., k C] to [..., O]."""

    def __init__(self, linear: nn.Module, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.linear, self.kernel, self.dilation = linear, kernel, dilation
        self.past = (kernel - 1) * dilation  # positions between the first and the last input


class SameConvolution(Convolution):
    """y_i = W [x_{i - r(k-1)/2}; ...; x_{i + r(k-1)/2}] + b, with zeros outside the sentence."""

    def __init__(self, linear: nn.Module, kernel: int, dilation: int = 1) -> None:
        assert kernel % 2, "an even kernel has no position in its middle"
        super().__init__(linear, kernel, dilation)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """x [B, T, C], padding [B, T, 1] True at padding -> [B, T, O], arbitrary at padding"""
        side = self.past // 2
        around = F.pad(x.masked_fill(padding, 0.0), (0, 0, side, side))  # [B, T + (k - 1) r, C]
        return self.linear(windows(around, self.kernel, self.dilation))


class CausalConvolution(Convolution):
    """y_i = W [x_{i - r(k-1)}; ...; x_i] + b, with zeros before the first position."""

    def forward(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x [N, T, C] after the inputs ``before`` (None: none) -> [N, T, O], and the inputs before the next position

        The cost of a position is constant: k inputs are multiplied and (k - 1) r copied.
        """
        inputs = F.pad(x, (0, 0, self.past, 0)) if before is None else torch.cat([before, x], dim=1)
        return self.linear(windows(inputs, self.kernel, self.dilation)), inputs[:, x.size(1) :]

    def empty_cache(self, rows: int, channels: int, like: Tensor) -> Tensor:
        """Return zero inputs [N, (k - 1) r, C] before the first position, with the data type and device of ``like``."""
        return like.new_zeros(rows, self.past, channels)


@dataclass
class ConvolutionState(DecoderState):
    """The position of each hypothesis, and the last inputs of the convolutions."""

    positions: Tensor  # [N] of the next token
    caches: tuple[Tensor, ...]  # by layer [N, (k - 1) r, C]
    length: int = 0  # upper bound of the positions
