"""Which positions an attention may see: masks of padded batches, and of batches without padding.

Without padding the sentences stand one after the other in one long row. Everything in a layer but attention works on single
positions. Attention has to know where sentences begin.

Shapes: B sentences, K beam, H heads, T queries, S keys, M positions of all sentences one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.layers.linear import eighths
from nmt.layers.padding import real_rows


@dataclass(frozen=True)
class Places:
    """Where the queries and the keys of a self-attention stand in their sequence."""

    queries: Tensor  # [T]; in a step [B, K]
    keys: Tensor  # [S]; in a step [1, S]
    bound: int  # all of them are below it


@dataclass(frozen=True)
class Mask:
    """Which keys may be seen. It is made once a call, for all layers of a stack."""

    bias: Tensor | None  # added to the scores [B, H, T, S]: -inf forbids; None: everything may be seen
    places: Places | None = None  # None where they mean nothing: the queries and keys of cross-attention


# Receives the weights [B, H, T, S] of an attention; None: nobody asks for them.
Weights = list[Tensor] | None


def whole_sequence(length: int, device: torch.device) -> Places:
    """Every position of a sequence is a query and a key."""
    positions = torch.arange(length, device=device)
    return Places(positions, positions, length)


EVERYTHING = -1  # in place of a number of positions

# A kernel is made for at least so much, or for shapes there would be no end to: fewer cost it hardly less.
LONGEST = 256  # positions of the longest segment
SEGMENTS = 128
USUAL = 16  # positions of a sentence


@dataclass(frozen=True)
class Room:
    """A size for the rows of both sides of a batch, one of few. Rows that are left over form segments of their own."""

    rows: int  # M
    segments: int
    longest: int  # segment
    added: int  # segments of rows that are left over, as many on either side: none has queries without keys

    @classmethod
    def for_sides(cls, counts: Sequence[int], longest: Sequence[int], sentences: int) -> Room:
        """Of the positions of either side, of its longest sentence, and of sentences."""
        longest_segment = max(LONGEST, _power_of_two(max(longest)))
        rows = eighths(max(counts) + 1)
        while rows - max(counts) < (added := -(-(rows - min(counts)) // longest_segment)):  # each has a row at least
            rows = eighths(rows + 1)
        segments = max(SEGMENTS, rows // USUAL, _power_of_two(sentences + added))
        return cls(rows, segments, longest_segment, added)


def _power_of_two(number: int) -> int:
    """Of those that are not below it the first."""
    return 1 << (number - 1).bit_length()


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
    def of(cls, lengths: Tensor, offsets: Tensor, longest: int, count: int, room: Room | None = None) -> Segments:
        """``room``: rows are added up to its size, shared out among segments; further segments are empty."""
        starts = torch.repeat_interleave(offsets[:-1], lengths, output_size=count)
        positions = torch.arange(count, device=offsets.device) - starts
        boundaries = offsets.to(torch.int32)
        if room is None:
            return cls(lengths, offsets, count, boundaries, Places(positions, positions, longest), longest)
        left = torch.arange(1, room.added + 1, device=offsets.device) * (room.rows - count) // room.added
        boundaries = torch.cat([boundaries, (count + left).to(torch.int32)])
        boundaries = F.pad(boundaries, (0, room.segments - lengths.numel() - room.added), value=room.rows)
        positions = F.pad(positions, (0, room.rows - count))
        return cls(lengths, offsets, count, boundaries, Places(positions, positions, room.longest), room.longest)

    def flatten(self, padded: Tensor) -> Tensor:
        """[B, T] -> [M]"""
        real = real_rows(padded, self.lengths, self.offsets, self.count)
        return F.pad(real, (0, self.places.queries.size(0) - self.count))


@dataclass(frozen=True, kw_only=True)
class FlatMask(Mask):
    """Positions see those of their own sentence: so many behind and ahead of themselves, themselves included."""

    queries: Segments
    keys: Segments
    behind: int = EVERYTHING
    ahead: int = EVERYTHING


class CanBeFlat(nn.Module):
    """What may be able to do without padding."""

    @property
    def flat(self) -> bool:
        """Whether it can do without padding (``flat_mask``) as it is set now."""
        return False

    def flat_mask(self, segments: Segments) -> FlatMask:
        """The mask of sentences without padding, where it is ``flat``."""
        raise NotImplementedError


def within(segments: Segments, *, behind: int = EVERYTHING, ahead: int = EVERYTHING) -> FlatMask:
    """The mask of a self-attention."""
    return FlatMask(None, segments.places, queries=segments, keys=segments, behind=behind, ahead=ahead)
