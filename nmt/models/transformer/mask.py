"""Attention masks of padded batches and of batches without padding, and the positions of queries and keys.

A batch without padding concatenates the sentences of a side into one row of M positions. All sublayers but attention work
on single positions. Attention needs the sentence boundaries, which ``Segments`` holds.

Shapes: B sentences, K beam, H heads, T queries or positions of a padded sentence, S keys, M positions of all sentences,
concatenated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.interface import Batch
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


@dataclass(frozen=True)
class Segments:
    """The boundaries of a batch's sentences in the row of all positions."""

    lengths: Tensor  # [B]
    offsets: Tensor  # [B + 1]
    boundaries: Tensor  # [B + 1] the offsets for the kernel, in int32
    positions: QueryKeyPositions  # [M] counted from the beginning of each sentence
    longest: int  # positions of the longest sentence, or more

    @classmethod
    def of(cls, lengths: Tensor, offsets: Tensor, longest: int, count: int) -> Segments:
        """Return the segments of sentences with ``count`` = M positions."""
        starts = torch.repeat_interleave(offsets[:-1], lengths, output_size=count)
        positions = torch.arange(count, device=offsets.device) - starts
        in_sentence = QueryKeyPositions(positions, positions, longest)
        return cls(lengths, offsets, offsets.to(torch.int32), in_sentence, longest)

    def flatten(self, padded: Tensor) -> Tensor:
        """[B, T] -> [M]"""
        return real_rows(padded, self.lengths, self.offsets, self.positions.queries.size(0))


def segments_of(batch: Batch) -> tuple[Segments, Segments]:
    """Return the segments of source and target."""
    source, target = batch.source.size(1), batch.target_in.size(1)
    return (
        Segments.of(batch.source_lengths, batch.source_offsets, source, batch.num_source_tokens),
        Segments.of(batch.target_lengths, batch.target_offsets, target, batch.num_tokens),
    )


UNLIMITED = -1  # the kernel's number for a window without a limit


@dataclass(frozen=True, kw_only=True)
class FlatMask(Mask):
    """Queries attend to keys of the same sentence, within ``behind`` and ``ahead`` positions."""

    queries: Segments
    keys: Segments
    behind: int = UNLIMITED
    ahead: int = UNLIMITED


def self_attention_mask(segments: Segments, *, behind: int = UNLIMITED, ahead: int = UNLIMITED) -> FlatMask:
    """Return the mask of a self-attention over these sentences."""
    return FlatMask(None, segments.positions, queries=segments, keys=segments, behind=behind, ahead=ahead)
