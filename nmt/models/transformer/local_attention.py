"""Restricted self-attention: a position attends to a neighborhood of r positions. Vaswani et al. 2017, section 4, Table 1.

Long sequences are computed in blocks: the queries of a block attend to a window, the block and its margins. Time and memory
grow linearly with the length. A key is copied into up to three windows. To limit the memory of the copies, a long batch is
computed in parts, which are recomputed in the backward pass. Short sequences use full attention with a banded mask.

Shapes: B sentences, N hypotheses, H heads, T positions, n blocks of b positions, w = margins + b positions of a window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt.models.transformer.attention import Attend, CausalSelfAttention, SelfAttention
from nmt.models.transformer.attention_kernels import LONG, attended
from nmt.models.transformer.autoregression import INITIAL_CAPACITY, BeamHistory, LayerCache, RecentKeyValueCache
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.mask import (
    FlatMask,
    Mask,
    QueryKeyPositions,
    Segments,
    WeightRecord,
    self_attention_mask,
    whole_sequence,
)

SMALLEST_BLOCK = 4

# Sequences up to this length are computed in one part: full attention on a CPU would hold all scores too.
SHORT = LONG[torch.float32] - 1

# Sequences of up to this many windows take less time and memory with a banded mask than in blocks.
FEW_WINDOWS = 2

# A long batch is computed in parts. Each part costs the overhead of all operations again.
PARTS = 24  # approximate number
SMALLEST_PART = 64  # positions, summed over the sentences

# The part of a sequence [B, H, T, d] before some part, that part, and the part after it.
Surrounded = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class BlockedMask(Mask):
    """The mask of a sequence that is computed in blocks; ``bias`` [B, 1, 1, T] masks the padding only.

    The neighborhoods are the same in all blocks, relative to the block.
    """

    block: QueryKeyPositions  # of the first block: queries [b], keys [w]
    outside: Tensor  # [b, w] True where a key is outside the query's neighborhood
    own: Tensor  # [b, w] True where a key has the query's position
    padding: Tensor  # [B, n, 1, 1, w]: the bias of each window


class LocalAttention(SelfAttention):
    """Self-attention in which position i attends to positions i - behind ... i + ahead, and always to itself."""

    looks_ahead: bool

    def __init__(
        self, reach: int, sizes: HeadSizes, bias: bool, attend: Attend, rotation: nn.Module | None = None
    ) -> None:
        super().__init__(sizes, bias, attend, rotation)
        self.behind, self.ahead = reach, reach if self.looks_ahead else 0
        # Not shorter than its margins, so that a key is in at most three windows.
        self.block = max(reach, SMALLEST_BLOCK)
        self.window = self.behind + self.block + self.ahead

    def mask(self, padding: Tensor) -> Mask:
        """Return a banded or blocked mask; ``padding`` [B, 1, 1, T] is -inf at padding."""
        length, device = padding.size(-1), padding.device
        if length <= max(self.window, min(FEW_WINDOWS * self.window, SHORT)):
            return self._banded(padding)
        queries, keys = torch.arange(self.block, device=device), torch.arange(self.window, device=device) - self.behind
        outside, own = self._relation(queries, keys)
        column = padding.transpose(2, 3)  # [B, 1, T, 1]
        windows = self._windows((column[:, :, :0], column, column[:, :, :0]), fill=float("-inf"))  # [B*n, 1, w, 1]
        windows = windows.transpose(2, 3).view(padding.size(0), -1, 1, 1, self.window)
        block, whole = QueryKeyPositions(queries, keys, length), whole_sequence(length, device)
        return BlockedMask(padding, whole, block=block, outside=outside, own=own, padding=windows)

    def attend_to(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: WeightRecord) -> Tensor:
        if not isinstance(mask, BlockedMask):
            return super().attend_to(queries, keys, values, mask, record)
        if record is not None:  # the recorded weights [B, H, T, T] need full attention
            assert mask.bias is not None
            return super().attend_to(queries, keys, values, self._banded(mask.bias), record)
        sentences, positions = self._part(queries.size(0), queries.size(2))
        groups = zip(*(torch.split(x, sentences) for x in (queries, keys, values, mask.padding)))
        parts = [self._split(positions, *group) for group in groups]
        in_blocks: Callable[..., Tensor] = partial(self._attend_in_blocks, mask)
        if torch.is_grad_enabled() and (len(parts) > 1 or len(parts[0]) > 1):
            in_blocks = partial(checkpoint, in_blocks, use_reentrant=False)  # recomputed in the backward pass
        rows = [torch.cat([in_blocks(*part) for part in group], 2) for group in parts]
        return torch.cat(rows) if len(rows) > 1 else rows[0]

    def _split(
        self, size: int, queries: Tensor, keys: Tensor, values: Tensor, padding: Tensor
    ) -> list[tuple[Tensor, Surrounded, Surrounded, Tensor]]:
        """Split into parts of ``size`` positions, the arguments of ``_attend_in_blocks``."""
        paddings = torch.split(padding, size // self.block, 1)
        return [*zip(torch.split(queries, size, 2), _surrounded(keys, size), _surrounded(values, size), paddings)]

    def _attend_in_blocks(
        self, whole: BlockedMask, queries: Tensor, keys: Surrounded, values: Surrounded, padding: Tensor
    ) -> Tensor:
        """Compute ``attend_to`` for a part of the sequence; ``padding`` [B, n, 1, 1, w]."""
        mask = Mask(_bias(padding.flatten(0, 1), whole.outside, whole.own), whole.block)
        padded = F.pad(queries, (0, 0, 0, -queries.size(2) % self.block))
        blocks = padded.view(*queries.shape[:2], -1, self.block, queries.size(3)).transpose(1, 2)  # [B, n, H, b, d_k]
        windows = self._windows(keys), self._windows(values)
        output = attended(self.attend, blocks.flatten(0, 1), *windows, mask)
        blocks = output.view(queries.size(0), -1, *output.shape[1:])  # [B, n, H, b, d_v]
        return blocks.transpose(1, 2).flatten(2, 3)[:, :, : queries.size(2)]

    def _part(self, sentences: int, length: int) -> tuple[int, int]:
        """Return the sentences and positions of a part; the positions are whole blocks.

        If one block of every sentence would exceed the size of a part, a part has fewer sentences.
        """
        if length <= SHORT:
            return sentences, -(-length // self.block) * self.block
        size = max(SMALLEST_PART, sentences * length // PARTS)
        positions = max(1, round(size / (sentences * self.block))) * self.block
        return min(sentences, max(1, size // positions)), positions

    def _banded(self, padding: Tensor) -> Mask:
        positions = whole_sequence(padding.size(-1), padding.device)
        return Mask(_bias(padding, *self._relation(positions.queries, positions.keys)), positions)

    def _relation(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Positions [T], [S] -> whether a key is outside the neighborhood, and whether it is the query's own: [T, S] each"""
        distances = keys[None, :] - queries[:, None]
        return (distances < -self.behind) | (distances > self.ahead), distances == 0

    def _windows(self, part: Surrounded, fill: float = 0.0) -> Tensor:
        """[B, H, T, d] -> [B*n, H, w, d]: each block with its margins; ``fill`` pads the ends of the sequence."""
        before, x, after = part
        before, after = before[:, :, max(0, before.size(2) - self.behind) :], after[:, :, : self.ahead]
        missing = self.behind - before.size(2), -x.size(2) % self.block + self.ahead - after.size(2)
        padded = F.pad(torch.cat([before, x, after], 2), (0, 0, *missing), value=fill)
        windows = padded.unfold(2, self.window, self.block)  # [B, H, n, d, w]
        return windows.permute(0, 2, 1, 4, 3).flatten(0, 1)

    def flat_mask(self, segments: Segments) -> FlatMask:
        return self_attention_mask(segments, behind=self.behind, ahead=self.ahead)


class LocalSelfAttention(LocalAttention):
    """Local self-attention of the encoder: |i - j| <= r."""

    looks_ahead = True

    def padding_mask(self, padding: Tensor) -> Mask:
        return self.mask(padding)


class LocalCausalSelfAttention(LocalAttention, CausalSelfAttention):
    """Local self-attention of the decoder: 0 <= i - j <= r. Decoding caches the last r + 1 positions."""

    looks_ahead = False

    def causal_mask(self, x: Tensor) -> Mask:
        return self.mask(x.new_zeros(x.size(0), 1, 1, x.size(1)))

    def start(self, sentences: int, beam: int, like: Tensor) -> RecentKeyValueCache:
        sizes = (sentences, self.sizes.num_heads, self.sizes.d_k, self.sizes.d_v)
        cache = RecentKeyValueCache.empty(sizes, beam, min(INITIAL_CAPACITY, self.behind + 1), like)
        cache.window = self.behind + 1
        return cache

    def step_mask(self, cache: LayerCache, history: BeamHistory) -> Mask:
        assert isinstance(cache, RecentKeyValueCache)
        return history.mask(cache.keys.dtype, cache.steps())


def _bias(padding: Tensor, outside: Tensor, own: Tensor) -> Tensor:
    """Return 0 at real keys of the neighborhood and at the query's own position, -inf elsewhere.

    Padding attends to itself, because the softmax of a row without keys is undefined.
    """
    return padding.masked_fill(outside, float("-inf")).masked_fill(own, 0.0)


def _surrounded(x: Tensor, size: int) -> list[Surrounded]:
    """Split a sequence into parts, each with the parts before and after it, which are empty at the ends."""
    parts, nothing = torch.split(x, size, 2), x[:, :, :0]
    return [*zip((nothing, *parts[:-1]), parts, (*parts[1:], nothing))]
