"""The layers of the Transformer and their sublayers: Vaswani et al. 2017, sections 3.1 and 3.3, figure 1.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, D model width, H heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Positions, sinusoids
from nmt.layers.linear import Linear
from nmt.layers.overriding import require_together
from nmt.layers.sinusoids import Sinusoids
from nmt.models.transformer.attention import CrossAttention
from nmt.models.transformer.autoregression import (
    OVERRIDE_STEP,
    Autoregression,
    BeamHistory,
    LayerCache,
    SourceAttention,
)
from nmt.models.transformer.mask import Mask

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module, ABC):
    """Wraps any sublayer that keeps the shape [..., D]."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    @abstractmethod
    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor: ...


class PostNorm(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))): Vaswani et al. 2017, sections 3.1 and 5.4."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(self.dropout.add(x, sublayer(x)))


class PreNorm(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))): gradients pass unchanged, so a stack needs a norm at its end."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.dropout.add(x, sublayer(self.norm(x)))


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2: Vaswani et al. 2017, equation 2; or another activation than max(0, x).
    [..., D] -> [..., D]

    The paper does not say how the weights start. torch's own way, uniform within 1 / sqrt(inputs), is smaller than
    Xavier's and learns faster under post-norm (docs/benchmarks.md).
    """

    def __init__(
        self, d_model: int, d_ff: int, dropout: float = 0.0, activation: Callable[[Tensor], Tensor] = torch.relu
    ) -> None:
        """``dropout`` applies to the inner activations."""
        super().__init__()
        self.activation = activation
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))


class GatedFeedForward(nn.Module):
    """(activation(x W) * x V) W2: Shazeer 2020, arXiv:2002.05202, equations 5 and 6. [..., D] -> [..., D]

    Without biases, as in the paper. There are three matrices instead of two: 2/3 of the inner width has the parameters
    of the plain network.
    """

    def __init__(self, activation: Callable[[Tensor], Tensor], d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        """``dropout`` applies to the gated inner activations."""
        super().__init__()
        self.activation = activation
        self.inner = Linear(d_model, 2 * d_ff, bias=False)  # rows: W, then V
        self.outer = Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inner(x).chunk(2, dim=-1)
        return self.outer(self.dropout(self.activation(gate) * value))


class Record:
    """What the layers of one pass leave behind besides their result."""

    def __init__(self, kinds: Sequence[str] = (), lengths: Tensor | None = None) -> None:
        """``kinds`` of attention that are asked for; real ``lengths`` [B] of the sentences (None: no padding)."""
        self.attention: dict[str, list[Tensor]] = {kind: [] for kind in kinds}  # weights, by layer
        self.lengths = lengths
        self.usage: list[Tensor] = []  # of experts, by layer that has some: [real positions, ...]

    def of(self, kind: str) -> list[Tensor] | None:
        """Where the weights of a kind of attention go; None: nobody asks."""
        return self.attention.get(kind)


@dataclass(frozen=True)
class LayerParts:
    """What the layers of a model are made of: functions, each of which makes a fresh part."""

    source_attention: Callable[[], SourceAttention]
    target_attention: Callable[[], Autoregression]
    cross_attention: Callable[[], CrossAttention]
    feed_forward: Callable[[], nn.Module]
    source_residual: Callable[[], Residual]
    target_residual: Callable[[], Residual]


class Layer(nn.Module):
    """A layer of either stack. The layers of a stack see alike: the self-attention of the first makes the mask for all."""

    self_attention: SourceAttention | Autoregression
    feed_forward: nn.Module
    feed_forward_residual: Residual

    @property
    def flat(self) -> bool:
        """Whether it can do without padding as it is set now."""
        return self.self_attention.flat

    def feed(self, x: Tensor, record: Record) -> Tensor:
        """The last sublayer: [..., T, D] -> [..., T, D]"""
        return self.feed_forward_residual(x, self.feed_forward)


class EncoderLayer(Layer):
    """Self-attention and a feed-forward network."""

    self_attention: SourceAttention

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention = parts.source_attention()
        self.self_residual = parts.source_residual()
        self.feed_forward = parts.feed_forward()
        self.feed_forward_residual = parts.source_residual()

    def forward(self, x: Tensor, mask: Mask, record: Record) -> Tensor:
        """[B, S, D] -> [B, S, D]"""
        x = self.self_residual(x, lambda y: self.self_attention(y, mask, record.of("encoder")))
        return self.feed(x, record)


MemoryHeads = tuple[Tensor, Tensor]  # keys [B, H, S, d_k] and values [B, H, S, d_v] of the memory


class DecoderLayer(Layer):
    """Self-attention over what is written so far, attention over the memory, and a feed-forward network."""

    self_attention: Autoregression  # keeps its name in saved models, whatever stands in its place

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for method in ("forward", "read"):
            require_together(cls, method, ("step",), OVERRIDE_STEP)

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention = parts.target_attention()
        self.self_residual = parts.target_residual()
        self.cross_attention = parts.cross_attention()
        self.cross_residual = parts.target_residual()
        self.feed_forward = parts.feed_forward()
        self.feed_forward_residual = parts.target_residual()

    @property
    def flat(self) -> bool:
        return self.self_attention.flat and self.cross_attention.flat

    def project(self, states: Tensor) -> MemoryHeads:
        """What the layer reads of the memory's states [B, S, D]."""
        return self.cross_attention.project(states)

    def forward(self, x: Tensor, mask: Mask, states: Tensor, memory_mask: Mask, record: Record) -> Tensor:
        """All positions at once: [B, T, D] -> [B, T, D]; ``memory_mask``: which states [B, S, D] may be seen."""
        return self.read(x, mask, self.project(states), memory_mask, record)

    def read(self, x: Tensor, mask: Mask, memory: MemoryHeads, memory_mask: Mask, record: Record) -> Tensor:
        """The same, of what ``project`` gave."""
        x = self.self_residual(x, lambda y: self.self_attention(y, mask, record.of("decoder")))
        return self._read_memory(x, memory, memory_mask, record)

    def start(self, sentences: int, beam: int, like: Tensor) -> LayerCache:
        """The cache before the first step."""
        return self.self_attention.start(sentences, beam, like)

    def step_mask(self, cache: LayerCache, history: BeamHistory) -> Mask:
        """The mask of one step."""
        return self.self_attention.step_mask(cache, history)

    def step(
        self, x: Tensor, cache: LayerCache, mask: Mask, memory: MemoryHeads, memory_mask: Mask, record: Record
    ) -> tuple[Tensor, LayerCache]:
        """One position, [B, K, D] -> [B, K, D], and the cache with that position in it. The old one is consumed."""

        def attend_back(y: Tensor) -> Tensor:
            nonlocal cache
            attended, cache = self.self_attention.step(y, cache, mask)
            return attended

        x = self.self_residual(x, attend_back)
        return self._read_memory(x, memory, memory_mask, record), cache

    def _read_memory(self, x: Tensor, memory: MemoryHeads, memory_mask: Mask, record: Record) -> Tensor:
        x = self.cross_residual(x, lambda y: self.cross_attention(y, *memory, memory_mask, record.of("cross")))
        return self.feed(x, record)


# One layer applied again and again: the Universal Transformer, Dehghani et al. 2019, arXiv:1807.03819, section 2.1. Before
# each application the layer is told where and when it is: positions and the number of the step, as sinusoids, are added to
# its input (equations 4 to 7). The number of applications is fixed; adaptive halting (section 2.2) is left out.


class Coordinates(nn.Module):
    """P^t = position + time, of each step t."""

    def __init__(self, positions: Positions, steps: int, d_model: int) -> None:
        """With ``NoPositions`` the layer hears of time alone: it knows positions by itself."""
        super().__init__()
        self.positions = positions
        times = sinusoids(torch.arange(1, steps + 1), Sinusoids(d_model)).to(torch.get_default_dtype())
        self.register_buffer("times", times, persistent=False)
        self.times: Tensor

    def forward(self, mask: Mask) -> tuple[Tensor, ...]:
        """By step: [T, D], or [B, K, D] in decoding; with ``NoPositions`` [1, D]."""
        assert mask.places is not None
        positions = self.positions.at(mask.places.queries, mask.places.bound)
        return tuple(positions + time for time in self.times)


class Repeated(nn.Module):
    """One layer that stands for a whole stack."""

    def __init__(self, layer: Layer, coordinates: Coordinates) -> None:
        super().__init__()
        self.layer, self.coordinates = layer, coordinates

    @property
    def flat(self) -> bool:
        return self.layer.flat


class UniversalEncoderLayer(Repeated):
    """A whole encoder out of one layer."""

    layer: EncoderLayer

    @property
    def self_attention(self) -> SourceAttention:
        return self.layer.self_attention

    def forward(self, x: Tensor, mask: Mask, record: Record) -> Tensor:
        for signal in self.coordinates(mask):
            x = self.layer(x + signal, mask, record)
        return x


@dataclass
class CacheByStep(LayerCache):
    """The cache of each application."""

    steps: tuple[LayerCache, ...]


class UniversalDecoderLayer(Repeated):
    """A whole decoder out of one layer: it reads the memory through one projection, and has one cache an application."""

    layer: DecoderLayer

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        require_together(cls, "forward", ("step",), OVERRIDE_STEP)

    @property
    def self_attention(self) -> Autoregression:
        return self.layer.self_attention

    def project(self, states: Tensor) -> MemoryHeads:
        return self.layer.project(states)

    def forward(self, x: Tensor, mask: Mask, states: Tensor, memory_mask: Mask, record: Record) -> Tensor:
        memory = self.project(states)
        for signal in self.coordinates(mask):
            x = self.layer.read(x + signal, mask, memory, memory_mask, record)
        return x

    def start(self, sentences: int, beam: int, like: Tensor) -> CacheByStep:
        return CacheByStep(tuple(self.layer.start(sentences, beam, like) for _ in self.coordinates.times))

    def step_mask(self, cache: LayerCache, history: BeamHistory) -> Mask:
        assert isinstance(cache, CacheByStep)
        return self.layer.step_mask(cache.steps[0], history)

    def step(
        self, x: Tensor, cache: LayerCache, mask: Mask, memory: MemoryHeads, memory_mask: Mask, record: Record
    ) -> tuple[Tensor, LayerCache]:
        assert isinstance(cache, CacheByStep)
        after: list[LayerCache] = []
        for signal, before in zip(self.coordinates(mask), cache.steps):
            x, written = self.layer.step(x + signal, before, mask, memory, memory_mask, record)
            after.append(written)
        return x, CacheByStep(tuple(after))


SourceLayer = EncoderLayer | UniversalEncoderLayer
TargetLayer = DecoderLayer | UniversalDecoderLayer
