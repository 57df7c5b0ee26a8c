"""Attention masks of padded batches and of batches without padding, and the positions of queries and keys.

A batch without padding concatenates the sentences of a side into one row of M positions. All sublayers but attention work
on single positions. Attention needs the sentence boundaries, which ``Segments`` holds.

Shapes: B sentences, K beam, H heads, T queries or positions of a padded sentence, S keys, M positions of all sentences,
concatenated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.interface import Batch
from nmt.layers.linear import eighths
from nmt.layers.padding import real_rows


@dataclass(frozen=True)
class QueryKeyPositions:
    """Positions in the sequence of the queries and keys of a self-attention."""

    queries: Tensor  # [T]; in a step [B, K]
    keys: Tensor  # [S]; in a step [1, S]
    bound: int  # exclusive upper bound of all positions


@dataclass(frozen=True)
class Mask:
    """The keys that each query may attend to; computed once per pass, for all layers of a stack."""

    bias: Tensor | None  # added to the scores [B, H, T, S], -inf at forbidden keys; None: all keys are allowed
    positions: QueryKeyPositions | None = None  # None for cross-attention


# A list that receives the attention weights [B, H, T, S]; None: weights are not recorded.
WeightRecord = list[Tensor] | None


def whole_sequence(length: int, device: torch.device) -> QueryKeyPositions:
    """Return positions for which every position of a sequence is a query and a key."""
    positions = torch.arange(length, device=device)
    return QueryKeyPositions(positions, positions, length)


# Batches without padding.

# Minimum sizes of ``FlatSize``. They limit the number of compiled shapes; smaller batches would hardly run faster.
MIN_LONGEST = 256  # positions of the longest segment
MIN_SEGMENTS = 128
MIN_SENTENCE = 16  # mean positions of a sentence


@dataclass(frozen=True)
class FlatSize:
    """A size for both sides of a batch, from a small set of sizes. Unused rows form segments of their own."""

    rows: int  # M
    segments: int
    longest: int  # upper bound of a segment's length
    unused: int  # segments of unused rows, equally many on both sides, so that every query segment has keys

    @classmethod
    def for_sides(cls, counts: Sequence[int], longest: Sequence[int], sentences: int) -> FlatSize:
        """Return the size for sides with ``counts`` positions and ``longest`` positions in their longest sentence."""
        longest_segment = max(MIN_LONGEST, _power_of_two(max(longest)))
        rows = eighths(max(counts) + 1)
        while rows - max(counts) < (unused := -(-(rows - min(counts)) // longest_segment)):  # at least a row for each
            rows = eighths(rows + 1)
        segments = max(MIN_SEGMENTS, rows // MIN_SENTENCE, _power_of_two(sentences + unused))
        return cls(rows, segments, longest_segment, unused)


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below ``number``."""
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class Segments:
    """The boundaries of a batch's sentences in the row of all positions."""

    lengths: Tensor  # [B]
    offsets: Tensor  # [B + 1]
    count: int  # positions of the sentences, at most M
    boundaries: Tensor  # [B + 1] or more, for the kernel: the first position of each segment, and M
    positions: QueryKeyPositions  # [M] counted from the beginning of each sentence
    longest: int  # upper bound of a segment's length

    @classmethod
    def of(cls, lengths: Tensor, offsets: Tensor, longest: int, count: int) -> Segments:
        """Return one segment for each sentence, without unused rows."""
        starts = torch.repeat_interleave(offsets[:-1], lengths, output_size=count)
        positions = torch.arange(count, device=offsets.device) - starts
        in_sentence = QueryKeyPositions(positions, positions, longest)
        return cls(lengths, offsets, count, offsets.to(torch.int32), in_sentence, longest)

    def filled(self, size: FlatSize) -> Segments:
        """Add unused rows up to ``size``, in segments of their own, and then empty segments."""
        ends = torch.arange(1, size.unused + 1, device=self.offsets.device) * (size.rows - self.count) // size.unused
        boundaries = torch.cat([self.boundaries, (self.count + ends).to(torch.int32)])
        boundaries = F.pad(boundaries, (0, size.segments - self.lengths.numel() - size.unused), value=size.rows)
        positions = F.pad(self.positions.queries, (0, size.rows - self.count))
        in_sentence = QueryKeyPositions(positions, positions, size.longest)
        return replace(self, boundaries=boundaries, positions=in_sentence, longest=size.longest)

    def flatten(self, padded: Tensor) -> Tensor:
        """[B, T] -> [M]"""
        real = real_rows(padded, self.lengths, self.offsets, self.count)
        return F.pad(real, (0, self.positions.queries.size(0) - self.count))


SegmentsOf = Callable[[Batch], tuple[Segments, Segments]]  # the segments of source and target


def exact_segments(batch: Batch) -> tuple[Segments, Segments]:
    """Return the segments of source and target, without unused rows."""
    source, target = batch.source.size(1), batch.target_in.size(1)
    return (
        Segments.of(batch.source_lengths, batch.source_offsets, source, batch.num_source_tokens),
        Segments.of(batch.target_lengths, batch.target_offsets, target, batch.num_tokens),
    )


def few_shapes(batch: Batch) -> tuple[Segments, Segments]:
    """Return the segments of source and target with unused rows up to a ``FlatSize``: a CUDA graph is for one size."""
    source, target = exact_segments(batch)
    counts, longest = (source.count, target.count), (source.longest, target.longest)
    size = FlatSize.for_sides(counts, longest, batch.num_sentences)
    return source.filled(size), target.filled(size)


UNLIMITED = -1  # the kernel's number for a window without a limit


@dataclass(frozen=True, kw_only=True)
class FlatMask(Mask):
    """Queries attend to keys of their own sentence, within ``behind`` and ``ahead`` positions."""

    queries: Segments
    keys: Segments
    behind: int = UNLIMITED
    ahead: int = UNLIMITED


def self_attention_mask(segments: Segments, *, behind: int = UNLIMITED, ahead: int = UNLIMITED) -> FlatMask:
    """Return the mask of a self-attention over these sentences."""
    return FlatMask(None, segments.positions, queries=segments, keys=segments, behind=behind, ahead=ahead)
