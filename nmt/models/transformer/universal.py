"""One layer applied again and again: the Universal Transformer, Dehghani et al. 2019, arXiv:1807.03819, section 2.1.

Before each application the layer is told where and when it is: positions and the number of the step, as sinusoids, are
added to its input (equations 4 to 7). The number of applications is fixed; adaptive halting (section 2.2) is left out.

Shapes: B sentences, K beam, S source positions, T target positions, D model width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.layers.embeddings import Positions, sinusoids
from nmt.models.transformer.autoregression import BeamHistory, LayerCache
from nmt.models.transformer.layers import Layer, MemoryHeads, Record, SourceLayer, TargetLayer
from nmt.models.transformer.mask import FlatMask, Mask, Segments


class Coordinates(nn.Module):
    """P^t = position + time, of each step t."""

    def __init__(self, positions: Positions, steps: int, d_model: int) -> None:
        """With ``NoPositions`` the layer hears of time alone: it knows positions by itself."""
        super().__init__()
        self.positions = positions
        times = sinusoids(torch.arange(1, steps + 1), d_model).to(torch.get_default_dtype())
        self.register_buffer("times", times, persistent=False)
        self.times: Tensor

    def forward(self, mask: Mask) -> tuple[Tensor, ...]:
        """By step: [T, D], or [B, K, D] in decoding; with ``NoPositions`` [1, D]."""
        assert mask.places is not None
        positions = self.positions.at(mask.places.queries, mask.places.bound)
        return tuple(positions + time for time in self.times)


class Repeated(Layer):
    """One layer that stands for a whole stack."""

    def __init__(self, layer: Layer, coordinates: Coordinates) -> None:
        super().__init__()
        self.layer = layer
        self.coordinates = coordinates

    @property
    def flat(self) -> bool:
        return self.layer.flat

    def flat_mask(self, segments: Segments) -> FlatMask:
        return self.layer.flat_mask(segments)


class UniversalEncoderLayer(Repeated, SourceLayer):
    """A whole encoder out of one layer."""

    layer: SourceLayer

    def padding_mask(self, padding: Tensor) -> Mask:
        return self.layer.padding_mask(padding)

    def forward(self, x: Tensor, mask: Mask, record: Record) -> Tensor:
        for signal in self.coordinates(mask):
            x = self.layer(x + signal, mask, record)
        return x


@dataclass
class CacheByStep(LayerCache):
    """The cache of each application."""

    steps: tuple[LayerCache, ...]


class UniversalDecoderLayer(Repeated, TargetLayer):
    """A whole decoder out of one layer: it reads the memory through one projection, and has one cache an application."""

    layer: TargetLayer

    def project(self, states: Tensor) -> MemoryHeads:
        return self.layer.project(states)

    def causal_mask(self, x: Tensor) -> Mask:
        return self.layer.causal_mask(x)

    def read(self, x: Tensor, mask: Mask, memory: MemoryHeads, memory_mask: Mask, record: Record) -> Tensor:
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
