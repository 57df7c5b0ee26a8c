"""Sizes for batches without padding, of which there are few: layers are compiled and CUDA graphs recorded for each size.

Shapes: B sentences, M positions of all sentences, concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from nmt.interface import Batch
from nmt.layers.linear import eighths
from nmt.models.transformer.mask import QueryKeyPositions, Segments, exact_segments

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


def few_shapes(batch: Batch) -> tuple[Segments, Segments]:
    """Return the segments of source and target with unused rows up to a ``FlatSize``: a CUDA graph is for one size."""
    source, target = exact_segments(batch)
    counts, longest = (source.count, target.count), (source.longest, target.longest)
    size = FlatSize.for_sides(counts, longest, batch.num_sentences)
    return filled(source, size), filled(target, size)


def filled(segments: Segments, size: FlatSize) -> Segments:
    """Add unused rows up to ``size``, in segments of their own, and then empty segments."""
    count, unused = segments.count, size.unused
    ends = torch.arange(1, unused + 1, device=segments.offsets.device) * (size.rows - count) // unused
    boundaries = torch.cat([segments.boundaries, (count + ends).to(torch.int32)])
    boundaries = F.pad(boundaries, (0, size.segments - segments.lengths.numel() - unused), value=size.rows)
    positions = F.pad(segments.positions.queries, (0, size.rows - count))
    in_sentence = QueryKeyPositions(positions, positions, size.longest)
    return replace(segments, boundaries=boundaries, positions=in_sentence, longest=size.longest)
