"""Which positions an attention may see.

Shapes: B sentences, N hypotheses, T queries, S keys, H heads, M positions of all sentences one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    boundaries: Tensor  # [B + 1] the offsets as the kernel wants them
    places: Places  # each position counted from the beginning of its sentence, [M]
    longest: int
    count: int  # M

    @classmethod
    def of(cls, lengths: Tensor, offsets: Tensor, longest: int, count: int) -> Segments:
        starts = torch.repeat_interleave(offsets[:-1], lengths, output_size=count)
        positions = torch.arange(count, device=offsets.device) - starts
        return cls(lengths, offsets, offsets.to(torch.int32), Places(positions, positions, longest), longest, count)

    def flatten(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> [M, ...]"""
        return real_rows(padded, self.lengths, self.offsets, self.count)


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
