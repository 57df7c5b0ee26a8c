"""How much of the source a hypothesis has attended to: Wu et al. 2016, arXiv:1609.08144, equation 14.

Legend: B sentences, N hypotheses still searched for, S source positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.errors import UsageError

_LEAST = 1e-10  # a piece that nothing attended to costs 23 nats, not infinitely many


class Coverage:
    """cp(X; Y) = weight * sum over source pieces of log(min(sum over target pieces of the attention, 1))."""

    def __init__(self, weight: float, source_lengths: Tensor) -> None:
        self._weight = weight
        self._lengths = source_lengths
        self._attended: Tensor | None = None  # [N, S] summed over the positions so far
        self._real: Tensor | None = None  # [N, S]

    def add(self, attention: Tensor | None) -> None:
        """The attention [N, S] of one more position."""
        if attention is None:
            raise UsageError("--coverage-penalty needs a model with attention; leave it out for this one")
        if self._attended is None:
            beam = attention.size(0) // len(self._lengths)
            lengths = self._lengths.repeat_interleave(beam)[:, None]
            self._real = torch.arange(attention.size(1), device=attention.device) < lengths
            self._attended = torch.zeros_like(attention, dtype=torch.float32)  # bfloat16 would lose small weights
        self._attended = self._attended + attention

    def follow(self, rows: Tensor) -> None:
        """The hypotheses of the next position are continuations of these rows."""
        assert self._attended is not None and self._real is not None
        self._attended, self._real = self._attended[rows], self._real[rows]

    def penalties(self, rows: Tensor) -> Tensor:
        """cp of these rows, as if they ended here; never above zero."""
        assert self._attended is not None and self._real is not None
        logarithms = self._attended[rows].clamp(_LEAST, 1.0).log()
        return self._weight * (logarithms * self._real[rows]).sum(1)
