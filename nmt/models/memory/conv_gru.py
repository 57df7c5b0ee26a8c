"""Convolutional gated recurrent units over images: Kaiser and Sutskever 2016, arXiv:1511.08228.

Shapes: N images (sentences or hypotheses), C maps, W width, H height. Images are [N, C, W, H], as torch convolves them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

KERNEL = 3  # cells a side of a filter, in both papers
CUTOFF = 1.2  # a gate is a logistic function stretched to -0.1 ... 1.1 and cut to 0 ... 1
OPEN = 1.0  # initial bias of the gates: most of an image stays as it is
GAIN = 1.8 * 0.8  # of the orthogonal initial filters, in the authors' published code


def cut_sigmoid(x: Tensor) -> Tensor:
    """min(1, max(0, 1.2 sigma(x) - 0.1)): a gate that can be entirely open or shut (section 2.1 of the paper)."""
    return (CUTOFF * torch.sigmoid(x) - (CUTOFF - 1) / 2).clamp(0.0, 1.0)


def orthogonal_filters(weight: Tensor) -> None:
    """Fill filters [C', C, ...] with orthogonal rows of the authors' size; in place."""
    nn.init.orthogonal_(weight, GAIN)


class ConvGRU(nn.Module):
    """One gated convolutional step of an image s, beside an image p that is only read.

    r, g = cut(U * [p, s] + B);  CGRU(s) = g . s + (1 - g) . tanh(V * [p, r . s] + B'),  with * a convolution that pads
    with zeros: section 2.1; with p, the "decided" tape of arXiv:1610.08613. The filters of r and g are one parameter.
    """

    def __init__(self, maps: int, read_maps: int = 0) -> None:
        super().__init__()
        self.gates = nn.Conv2d(read_maps + maps, 2 * maps, KERNEL, padding=KERNEL // 2)
        self.candidate = nn.Conv2d(read_maps + maps, maps, KERNEL, padding=KERNEL // 2)
        for filters in (*self.gates.weight.detach().chunk(2), self.candidate.weight.detach()):
            orthogonal_filters(filters)
        nn.init.constant_(self.gates.bias, OPEN)  # type: ignore[arg-type]
        nn.init.zeros_(self.candidate.bias)  # type: ignore[arg-type]

    def forward(self, image: Tensor, inside: Tensor, read: Tensor | None = None) -> Tensor:
        """image [N, C, W, H] -> [N, C, W, H]; ``inside`` [N, 1, W, 1] is 1 in an image's own columns and 0 beyond.

        What is beyond is zero in the image and in ``read``, as if there were padding, and zero in the result.
        """
        reset, update = cut_sigmoid(self.gates(_beside(read, image))).chunk(2, dim=1)
        candidate = torch.tanh(self.candidate(_beside(read, reset * image)))
        dtype = image.dtype  # of a norm, or of a convolution under autocast
        return torch.lerp(candidate.to(dtype), image, update.to(dtype)) * inside


def _beside(read: Tensor | None, image: Tensor) -> Tensor:
    return image if read is None else torch.cat([read, image], dim=1)


class ImageStep(nn.Module):
    """Gated convolutions one after the other: one step of an encoder or a decoder."""

    def __init__(self, convolutions: Sequence[ConvGRU]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(convolutions)

    def forward(self, image: Tensor, inside: Tensor, read: Tensor | None = None) -> Tensor:
        """[N, C, W, H] -> [N, C, W, H]; the arguments are those of ``ConvGRU``."""
        for convolution in self.convolutions:
            image = convolution(image, inside, read)
        return image


class ImageDropout(nn.Module):
    """Zero elements of an image with probability 3 p / sqrt(length), and scale the rest, in training mode.

    An image of a long sentence passes it more often. The rule is that of the authors' published code, with each
    sentence's own length in place of its batch's.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, image: Tensor, lengths: Tensor) -> Tensor:
        """image [N, C, W, H], lengths [N]"""
        if not self.training or self.p == 0.0:
            return image
        kept = (1 - 3 * self.p / lengths.to(image.dtype).sqrt())[:, None, None, None]
        return image * (torch.rand_like(image) < kept) / kept
