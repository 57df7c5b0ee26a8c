"""Which positions an attention may see.

Shapes: B sentences, N hypotheses, T queries, S keys, H heads, M positions of all sentences one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
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
    """Where the sentences of a batch stand in the long row, which may end in rows that nobody asks for."""

    lengths: Tensor  # [B]
    offsets: Tensor  # [B + 1]
    count: int  # of the sentences' positions, at most M
    boundaries: Tensor  # [B + 1], or more: where segments begin and end, as the kernel wants it
    places: Places  # each position counted from the beginning of its sentence, [M]
    longest: int  # no segment is longer

    @classmethod
    def of(cls, lengths: Tensor, offsets: Tensor, longest: int, count: int, *, few_shapes: bool = False) -> Segments:
        """``few_shapes``: a row with an end, in one more segment, so that batches of a size become rows of a length."""
        starts = torch.repeat_interleave(offsets[:-1], lengths, output_size=count)
        positions = torch.arange(count, device=offsets.device) - starts
        boundaries = offsets.to(torch.int32)
        if few_shapes:
            rows = slightly_more(count)
            longest = power_of_two(max(longest, rows - count))
            empty = power_of_two(lengths.numel() + 1) - lengths.numel() - 1
            boundaries = F.pad(boundaries, (0, 1 + empty), value=rows)
            positions = F.pad(positions, (0, rows - count))
        return cls(lengths, offsets, count, boundaries, Places(positions, positions, longest), longest)

    def flatten(self, padded: Tensor) -> Tensor:
        """[B, T] -> [M]"""
        real = real_rows(padded, self.lengths, self.offsets, self.count)
        return F.pad(real, (0, self.places.queries.size(0) - self.count))

    def real(self, flat: Tensor) -> Tensor:
        """[M, ...] -> [count, ...]"""
        return flat[: self.count]


def power_of_two(number: int) -> int:
    """Of those that are not below it the first."""
    return 1 << (number - 1).bit_length()


def slightly_more(number: int) -> int:
    """The next of eight numbers between a power of two and twice as much: at least 1 more, at most an eighth."""
    step = max(8, power_of_two(number + 1) // 16)
    return (number // step + 1) * step


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
