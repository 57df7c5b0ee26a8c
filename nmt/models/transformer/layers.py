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
from nmt.models.transformer.mask import Mask, WeightRecord

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module, ABC):
    """The residual connection and norm around a sublayer that keeps the shape [..., D]; each sublayer has its own.

    Training calls it with all positions, decoding with one, so it must treat positions separately.
    """

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    @abstractmethod
    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """[..., D] -> [..., D]; call ``sublayer`` exactly once: in decoding, it also writes the key-value cache."""


class PostNorm(Residual):
    """LayerNorm(x + Dropout(Sublayer(x))): Vaswani et al. 2017, sections 3.1 and 5.4."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(self.dropout.add(x, sublayer(x)))


class PreNorm(Residual):
    """x + Dropout(Sublayer(LayerNorm(x))): the residual path has no norm, so a stack ends in one."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.dropout.add(x, sublayer(self.norm(x)))


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2: Vaswani et al. 2017, equation 2, or with another activation. [..., D] -> [..., D]

    The paper does not specify the initialization. torch's default, uniform within 1 / sqrt(inputs), is smaller than
    Xavier's and learns faster with post-norm (benchmarks/history/multi30k.md).
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

    Without biases, as in the paper. It has three matrices, so 2/3 of the inner width gives the number of parameters of
    ``FeedForward``.
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
    """Attention weights and expert usage that the layers record during one pass."""

    def __init__(self, kinds: Sequence[str] = (), lengths: Tensor | None = None) -> None:
        """``kinds`` of attention to record; ``lengths`` [B] of the sentences (None: no padding)."""
        self.attention: dict[str, list[Tensor]] = {kind: [] for kind in kinds}  # weights, by layer
        self.lengths = lengths
        self.usage: list[Tensor] = []  # of experts, by layer with experts: [real positions, ...]

    def of(self, kind: str) -> WeightRecord:
        """Return the list that receives the weights of a kind of attention; None: they are not recorded."""
        return self.attention.get(kind)


@dataclass(frozen=True)
class LayerParts:
    """Functions without arguments that build the parts of a layer; each layer calls them once, the residuals for each
    sublayer. ``layer_parts`` of parts.py returns those of the options.
    """

    source_attention: Callable[[], SourceAttention]
    target_attention: Callable[[], Autoregression]
    cross_attention: Callable[[], CrossAttention]
    feed_forward: Callable[[], nn.Module]
    source_residual: Callable[[], Residual]
    target_residual: Callable[[], Residual]


class TransformerLayer(nn.Module):
    """A layer of the encoder or decoder. The mask of the first layer serves the whole stack."""

    self_attention: SourceAttention | Autoregression
    feed_forward: nn.Module
    feed_forward_residual: Residual

    @property
    def flat(self) -> bool:
        """Whether it supports batches without padding, in its current mode."""
        return self.self_attention.flat

    def feed(self, x: Tensor, record: Record) -> Tensor:
        """The feed-forward sublayer: [..., T, D] -> [..., T, D]"""
        return self.feed_forward_residual(x, self.feed_forward)


class EncoderLayer(TransformerLayer):
    """Self-attention and a feed-forward network: section 3.1."""

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


MemoryHeads = tuple[Tensor, Tensor]  # keys [B, H, S, d_k] and values [B, H, S, d_v] of the encoder output


class DecoderLayer(TransformerLayer):
    """Self-attention, attention to the encoder output, and a feed-forward network: section 3.1."""

    self_attention: Autoregression  # or a replacement, under the same name in checkpoints

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
        """Project the encoder output [B, S, D] to keys and values."""
        return self.cross_attention.project(states)

    def forward(self, x: Tensor, mask: Mask, states: Tensor, memory_mask: Mask, record: Record) -> Tensor:
        """All positions at once: [B, T, D] -> [B, T, D]; ``memory_mask`` masks the encoder output ``states`` [B, S, D]."""
        return self.read(x, mask, self.project(states), memory_mask, record)

    def read(self, x: Tensor, mask: Mask, memory: MemoryHeads, memory_mask: Mask, record: Record) -> Tensor:
        """Compute ``forward`` from the result of ``project``."""
        x = self.self_residual(x, lambda y: self.self_attention(y, mask, record.of("decoder")))
        return self._read_memory(x, memory, memory_mask, record)

    def start(self, sentences: int, beam: int, like: Tensor) -> LayerCache:
        """Return the cache before the first step."""
        return self.self_attention.start(sentences, beam, like)

    def step_mask(self, cache: LayerCache, history: BeamHistory) -> Mask:
        """Return the mask of one step."""
        return self.self_attention.step_mask(cache, history)

    def step(
        self, x: Tensor, cache: LayerCache, mask: Mask, memory: MemoryHeads, memory_mask: Mask, record: Record
    ) -> tuple[Tensor, LayerCache]:
        """One position: [B, K, D] -> [B, K, D], and the cache with that position. The old cache must not be used again."""

        def attend_back(y: Tensor) -> Tensor:
            nonlocal cache
            attended, cache = self.self_attention.step(y, cache, mask)
            return attended

        x = self.self_residual(x, attend_back)
        return self._read_memory(x, memory, memory_mask, record), cache

    def _read_memory(self, x: Tensor, memory: MemoryHeads, memory_mask: Mask, record: Record) -> Tensor:
        x = self.cross_residual(x, lambda y: self.cross_attention(y, *memory, memory_mask, record.of("cross")))
        return self.feed(x, record)


# The Universal Transformer applies one layer repeatedly: Dehghani et al. 2019, arXiv:1807.03819, section 2.1. Sinusoids of
# the positions and of the step number are added to the input of each application (equations 4 to 7). The number of
# applications is fixed; adaptive halting (section 2.2) is not implemented.


class Coordinates(nn.Module):
    """P^t = position + time for each step t: the coordinate embeddings of equations 6 and 7."""

    def __init__(self, positions: Positions, steps: int, d_model: int) -> None:
        """``positions``: ``NoPositions`` if the layer applies positions itself."""
        super().__init__()
        self.positions = positions
        times = sinusoids(torch.arange(1, steps + 1), Sinusoids(d_model)).to(torch.get_default_dtype())
        self.register_buffer("times", times, persistent=False)
        self.times: Tensor

    def forward(self, mask: Mask) -> tuple[Tensor, ...]:
        """Return [T, D] for each step; in decoding [B, K, D]; with ``NoPositions`` [1, D]."""
        assert mask.positions is not None
        positions = self.positions.at(mask.positions.queries, mask.positions.bound)
        return tuple(positions + time for time in self.times)


class UniversalLayer(nn.Module):
    """One layer that is applied repeatedly, instead of a stack."""

    def __init__(self, layer: TransformerLayer, coordinates: Coordinates) -> None:
        super().__init__()
        self.layer, self.coordinates = layer, coordinates

    @property
    def flat(self) -> bool:
        return self.layer.flat

    @property
    def self_attention(self) -> Any:
        return self.layer.self_attention


class UniversalEncoderLayer(UniversalLayer):
    """An encoder of one repeated layer."""

    layer: EncoderLayer

    def forward(self, x: Tensor, mask: Mask, record: Record) -> Tensor:
        for signal in self.coordinates(mask):
            x = self.layer(x + signal, mask, record)
        return x


@dataclass
class CacheByStep(LayerCache):
    """A cache for each application of a layer."""

    steps: tuple[LayerCache, ...]


class UniversalDecoderLayer(UniversalLayer):
    """A decoder of one repeated layer: one projection of the encoder output, and a cache for each application."""

    layer: DecoderLayer

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        require_together(cls, "forward", ("step",), OVERRIDE_STEP)

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
