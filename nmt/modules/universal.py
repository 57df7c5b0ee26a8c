"""One layer applied again and again: the Universal Transformer, Dehghani et al. 2019, arXiv:1807.03819, section 2.1.

Before each application the layer is told where and when it is: positions and the number of the step, as sinusoids, are
added to its input (equations 4 to 7). The number of applications is fixed; adaptive halting (section 2.2) is left out.

Shapes: B sentences, K beam, S source positions, T target positions, D model width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.modules.autoregression import Lineage, Past
from nmt.modules.positions import Positions, sinusoids
from nmt.modules.sight import FlatSight, Segments, Sight
from nmt.modules.transformer_layers import MemoryHeads, Record, SourceLayer, Step, TargetLayer


class Coordinates(nn.Module):
    """P^t = position + time, of each step t."""

    def __init__(self, positions: Positions, steps: int, d_model: int) -> None:
        """With ``NoPositions`` the layer hears of time alone: it knows positions by itself."""
        super().__init__()
        self.positions = positions
        times = sinusoids(torch.arange(1, steps + 1), d_model).to(torch.get_default_dtype())
        self.register_buffer("times", times, persistent=False)
        self.times: Tensor

    def forward(self, sight: Sight) -> tuple[Tensor, ...]:
        """By step: [T, D], or [B, K, D] in decoding; with ``NoPositions`` [1, D]."""
        assert sight.places is not None
        positions = self.positions.at(sight.places.queries, sight.places.bound)
        return tuple(positions + time for time in self.times)


class UniversalEncoderLayer(SourceLayer):
    """A whole encoder out of one layer."""

    def __init__(self, layer: SourceLayer, coordinates: Coordinates) -> None:
        super().__init__()
        self.layer = layer
        self.coordinates = coordinates

    @property
    def flat(self) -> bool:
        return self.layer.flat

    def along(self, segments: Segments) -> FlatSight:
        return self.layer.along(segments)

    def around(self, padding: Tensor) -> Sight:
        return self.layer.around(padding)

    def forward(self, x: Tensor, sight: Sight, record: Record) -> Tensor:
        for signal in self.coordinates(sight):
            x = self.layer(x + signal, sight, record)
        return x


@dataclass
class Pasts(Past):
    """The past of each application."""

    steps: tuple[Past, ...]

    def reaching(self, steps: int) -> Pasts:
        return Pasts(tuple(past.reaching(steps) for past in self.steps))


class UniversalDecoderLayer(TargetLayer):
    """A whole decoder out of one layer: it reads the memory through one projection, and has one past an application."""

    def __init__(self, layer: TargetLayer, coordinates: Coordinates) -> None:
        super().__init__()
        self.layer = layer
        self.coordinates = coordinates

    @property
    def flat(self) -> bool:
        return self.layer.flat

    def along(self, segments: Segments) -> FlatSight:
        return self.layer.along(segments)

    def project(self, states: Tensor) -> MemoryHeads:
        return self.layer.project(states)

    def prepare(self, states: Tensor) -> MemoryHeads:
        return self.layer.prepare(states)

    def whole(self, x: Tensor) -> Sight:
        return self.layer.whole(x)

    def read(self, x: Tensor, sight: Sight, memory: MemoryHeads, seen: Sight, record: Record) -> Tensor:
        for signal in self.coordinates(sight):
            x = self.layer.read(x + signal, sight, memory, seen, record)
        return x

    def start(self, sentences: int, beam: int, like: Tensor) -> Pasts:
        return Pasts(tuple(self.layer.start(sentences, beam, like) for _ in self.coordinates.times))

    def start_fixed(self, sentences: int, beam: int, steps: int, like: Tensor) -> Pasts | None:
        pasts = [self.layer.start_fixed(sentences, beam, steps, like) for _ in self.coordinates.times]
        known = tuple(past for past in pasts if past is not None)
        return Pasts(known) if len(known) == len(pasts) else None

    def now(self, past: Past, lineage: Lineage) -> Sight:
        assert isinstance(past, Pasts)
        return self.layer.now(past.steps[0], lineage)

    def stepper(self) -> Step:
        apply = self.layer.stepper()

        def step(
            x: Tensor, past: Past, sight: Sight, memory: MemoryHeads, seen: Sight, record: Record
        ) -> tuple[Tensor, Past]:
            assert isinstance(past, Pasts)
            after: list[Past] = []
            for signal, before in zip(self.coordinates(sight), past.steps):
                x, written = apply(x + signal, before, sight, memory, seen, record)
                after.append(written)
            return x, Pasts(tuple(after))

        return step
