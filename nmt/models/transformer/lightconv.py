"""Lightweight and dynamic convolutions that replace self-attention: Wu et al. 2019, arXiv:1901.10430.

Shapes: B sentences, K beam, N = B*K hypotheses, T positions, D channels, H heads of C = D / H channels, k kernel width,
n blocks of b positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.interface import VocabularySizes
from nmt.layers.dropout import Dropout
from nmt.layers.linear import Linear, with_few_kernels
from nmt.models import models
from nmt.models.transformer.attention import merge_heads, split_heads
from nmt.models.transformer.autoregression import Autoregression, LayerCache, SourceAttention
from nmt.models.transformer.layers import DecoderLayer, EncoderLayer
from nmt.models.transformer.lightconv_config import ConvolutionKind, LightConvConfig
from nmt.models.transformer.mask import Mask, WeightRecord
from nmt.models.transformer.parts import Stacks, layer_parts, position_vectors
from nmt.models.transformer.transformer import Transformer

BLOCK = 128  # positions computed by one matrix product for each head


def convolve(x: Tensor, kernels: Tensor) -> Tensor:
    """y_t = sum_j w_tj x_{t+j} in each channel, by the kernel of its head; a depthwise convolution, equation 2.

    x [B, T + k - 1, D], kernels [B or 1, H, T or 1, k] -> [B, T, D]. The kernels of a block form a band matrix
    [b, b + k - 1]: each row is shifted by one column. On a CPU, a product with it is faster than copying a window for each
    position, and than torch's depthwise convolution, which does not support a kernel for each position.
    """
    heads, width = kernels.size(1), kernels.size(3)
    length = x.size(1) - width + 1
    block = min(length, BLOCK)
    missing = -length % block
    values = split_heads(F.pad(x, (0, 0, 0, missing)), heads)  # [B, H, n b + k - 1, C]
    windows = values.unfold(2, block + width - 1, block).transpose(3, 4)  # [B, H, n, b + k - 1, C]
    rows = F.pad(kernels.expand(-1, -1, length, -1), (0, block, 0, missing))  # [B, H, n b, k + b]
    # In rows that are shorter by one, each kernel is shifted by one column.
    band = rows.reshape(*rows.shape[:2], -1, block * (block + width))[..., : block * (block + width - 1)]
    band = band.reshape(*band.shape[:3], block, -1)  # [B, H, n, b, b + k - 1]
    convolved = with_few_kernels(lambda band, windows: band.to(windows.dtype) @ windows, band, windows)
    return merge_heads(convolved.flatten(2, 3)[:, :, :length])


class LearnedKernels(nn.Module):
    """A learned kernel for each head, normalized by a softmax: equation 3."""

    not_maps = ("weight",)

    def __init__(self, d_model: int, num_heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, width))
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [1, H, 1, k]"""
        return self.dropout(torch.softmax(self.weight, dim=-1))[None, :, None]


class PredictedKernels(nn.Module):
    """A kernel for each head and position, predicted from the position's input: section 4."""

    def __init__(self, d_model: int, num_heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.linear = Linear(d_model, num_heads * width, bias=False)
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, H, T, k]"""
        return self.dropout(torch.softmax(split_heads(self.linear(x), self.num_heads), dim=-1))


KERNELS = {ConvolutionKind.lightweight: LearnedKernels, ConvolutionKind.dynamic: PredictedKernels}


class HeadConvolution(nn.Module):
    """W^O convolve(GLU(W^I x)): figure 2. Subclasses pad the input of the convolution."""

    def __init__(self, config: LightConvConfig, width: int) -> None:
        super().__init__()
        d_model = config.d_model
        self.width = width
        self.gated = config.gated
        self.input = Linear(d_model, 2 * d_model if config.gated else d_model)
        self.kernels = KERNELS[config.convolution](d_model, config.num_heads, width, config.weight_dropout)
        self.output = Linear(d_model, d_model)
        for linear in (self.input, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def enter(self, x: Tensor) -> Tensor:
        """The input of the convolution: [B, T, D] -> [B, T, D]"""
        projected = self.input(x)
        return F.glu(projected, dim=-1) if self.gated else projected

    def leave(self, entered: Tensor, padded: Tensor) -> Tensor:
        """``entered`` [B, T, D], and ``padded`` with k - 1 more positions [B, T + k - 1, D] -> [B, T, D]"""
        return self.output(convolve(padded, self.kernels(entered)))


class SourceConvolution(HeadConvolution, SourceAttention):
    """The encoder's convolution, centered at each position, with zeros beyond the sentence."""

    def forward(self, x: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        """[B, S, D] -> [B, S, D]"""
        entered, side = self.enter(x), self.width // 2
        if mask.bias is not None:
            entered = entered.masked_fill(mask.bias.view(*x.shape[:2], 1) < 0, 0.0)
        return self.leave(entered, F.pad(entered, (0, 0, side, side)))


@dataclass
class RecentInputs(LayerCache):
    """The inputs of the last k - 1 positions."""

    inputs: Tensor  # [N, k - 1, D]


class TargetConvolution(HeadConvolution, Autoregression):
    """The decoder's causal convolution. The cost of a step does not depend on its position."""

    def forward(self, x: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        entered = self.enter(x)
        return self.leave(entered, F.pad(entered, (0, 0, self.width - 1, 0)))

    def start(self, sentences: int, beam: int, like: Tensor) -> RecentInputs:
        return RecentInputs(like.new_zeros(sentences * beam, self.width - 1, self.output.in_features))

    def step(self, x: Tensor, cache: RecentInputs, mask: Mask) -> tuple[Tensor, LayerCache]:
        entered = self.enter(x).flatten(0, 1)[:, None]  # [N, 1, D]
        window = torch.cat([cache.inputs, entered], dim=1)  # [N, k, D]
        return self.leave(entered, window).view_as(x), RecentInputs(window[:, 1:])


def stacks(config: LightConvConfig) -> Stacks:
    """Return stacks of layers, each with its kernel width."""
    parts = layer_parts(config)
    encoder = [replace(parts, source_attention=partial(SourceConvolution, config, k)) for k in config.encoder_widths()]
    decoder = [replace(parts, target_attention=partial(TargetConvolution, config, k)) for k in config.decoder_widths()]
    return Stacks(
        position_vectors,
        encoder=lambda c: [EncoderLayer(parts) for parts in encoder],
        decoder=lambda c: [DecoderLayer(parts) for parts in decoder],
    )


@models.register("lightconv", LightConvConfig)
class LightConv(Transformer):
    """A Transformer with convolutions instead of self-attention."""

    def __init__(self, config: LightConvConfig, sizes: VocabularySizes) -> None:
        super().__init__(config, sizes, stacks(config))
