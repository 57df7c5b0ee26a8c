"""Which positions an attention may see.

Shapes: B sentences, N hypotheses, T queries, S keys, H heads, M positions of all sentences one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nmt.modules.padding import real_rows

EVERYTHING = -1  # in place of a number of positions


@dataclass(frozen=True)
class Places:
    """Where the queries and the keys of a self-attention stand in their sequence."""

    queries: Tensor  # [T]; in a step [N, 1]
    keys: Tensor  # [S]; in a step [N, S]
    bound: int  # all of them are below it


@dataclass(frozen=True)
class Sight:
    """Which keys may be seen. It is made once a call, for all layers of a stack."""

    bias: Tensor | None  # added to the scores [B, H, T, S]: -inf forbids; None: everything may be seen
    places: Places | None = None  # None where they mean nothing: the queries and keys of cross-attention


def whole_sequence(length: int, device: torch.device) -> Places:
    """Every position of a sequence is a query and a key."""
    positions = torch.arange(length, device=device)
    return Places(positions, positions, length)


@dataclass(frozen=True)
class Segments:
    """Where the sentences of a batch stand in the long row."""

    lengths: Tensor  # [B]
    offsets: Tensor  # [B + 1]
    longest: int
    count: int  # M

    def flatten(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> [M, ...]"""
        return real_rows(padded, self.lengths, self.offsets, self.count)

    @cached_property
    def places(self) -> Places:
        """Each position counted from the beginning of its sentence, [M]."""
        starts = torch.repeat_interleave(self.offsets[:-1], self.lengths, output_size=self.count)
        positions = torch.arange(self.count, device=self.offsets.device) - starts
        return Places(positions, positions, self.longest)

    @cached_property
    def boundaries(self) -> Tensor:
        """The offsets as the kernel wants them."""
        return self.offsets.to(torch.int32)


@dataclass(frozen=True, kw_only=True)
class FlatSight(Sight):
    """Positions see those of their own sentence: so many behind and ahead of themselves, themselves included."""

    queries: Segments
    keys: Segments
    behind: int = EVERYTHING
    ahead: int = EVERYTHING


def within(segments: Segments, *, behind: int = EVERYTHING, ahead: int = EVERYTHING) -> FlatSight:
    """The sight of a self-attention."""
    return FlatSight(None, segments.places, queries=segments, keys=segments, behind=behind, ahead=ahead)


def across(queries: Segments, keys: Segments) -> FlatSight:
    """The sight of an attention over another row."""
    return FlatSight(None, queries=queries, keys=keys)
