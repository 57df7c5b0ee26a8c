"""How much of the source a hypothesis has attended to: Wu et al. 2016, arXiv:1609.08144, equation 14.

Legend: B sentences, N hypotheses still searched for, S source positions.
"""

from __future__ import annotations

import numpy as np

from nmt.data.hypothesis import Floats, Ints
from nmt.errors import UsageError
from nmt.search.candidates import Flags

_LEAST = 1e-10  # a piece that nothing attended to costs 23 nats, not infinitely many


class Coverage:
    """cp(X; Y) = weight * sum over source pieces of log(min(sum over target pieces of the attention, 1))."""

    def __init__(self, weight: float, source_lengths: Ints) -> None:
        self._weight = weight
        self._lengths = source_lengths
        self._attended: Floats | None = None  # [N, S] summed over the positions so far
        self._real: Flags | None = None  # [N, S]

    def add(self, attention: Floats | None) -> None:
        """The attention [N, S] of one more position."""
        if attention is None:
            raise UsageError("--coverage-penalty needs a model with attention; leave it out for this one")
        if self._attended is None:
            beam = len(attention) // len(self._lengths)
            self._real = np.arange(attention.shape[1]) < self._lengths.repeat(beam)[:, None]
            self._attended = np.zeros(attention.shape, dtype=np.float32)
        self._attended = self._attended + attention

    def follow(self, rows: Ints) -> None:
        """The hypotheses of the next position are continuations of these rows."""
        assert self._attended is not None and self._real is not None
        self._attended, self._real = self._attended[rows], self._real[rows]

    def penalties(self, rows: Ints) -> Floats:
        """cp of these rows, as if they ended here; never above zero."""
        assert self._attended is not None and self._real is not None
        logarithms = np.log(self._attended[rows].clip(_LEAST, 1.0))
        found: Floats = np.float32(self._weight) * (logarithms * self._real[rows]).sum(1)
        return found
