"""Restricted self-attention: a position sees a neighbourhood of r positions. Vaswani et al. 2017, section 4, Table 1.

Long sequences are computed in blocks. The queries of a block see the keys of the block and of its margins, so time and
memory grow with the length, not with its square. A key stands in up to three windows: to keep these copies from taking
more memory than they save, a few blocks of a few sentences are computed at a time, and once more for the gradient. A short
sequence has few scores: it is computed at once, and under a mask where blocks would take more.

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
from nmt.models.transformer.mask import FlatMask, Mask, Places, Segments, Weights, whole_sequence, within

SMALLEST_BLOCK = 4

# Positions up to which copies of keys need no saving: there, full attention on a CPU holds all its scores.
SHORT = LONG[torch.float32] - 1

# Windows up to whose length a short sequence takes less time and memory under a mask than in blocks.
FEW_WINDOWS = 2

# A long batch is computed in parts, one after the other. Each part repeats the calls of all operations.
PARTS = 24  # about so many
SMALLEST_PART = 64  # positions, of all its sentences together

# A part of a sequence [B, H, T, d] between the part before it and the one after it.
Surrounded = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class BlockedMask(Mask):
    """The mask of a sequence that is computed in blocks: ``bias`` [B, 1, 1, T] forbids padding alone.

    What the queries of a block may see besides is the same for all blocks but for a shift.
    """

    block: Places  # the first one: queries [b], keys [w]
    outside: Tensor  # [b, w] True where a key is in nobody's neighbourhood
    own: Tensor  # [b, w] True where a key is the query's own
    padding: Tensor  # [B, n, 1, 1, w]: the bias, window by window


class Local(SelfAttention):
    """Self-attention where position i sees positions i - behind ... i + ahead of its sequence, and always itself."""

    looks_ahead: bool

    def __init__(
        self, reach: int, sizes: HeadSizes, bias: bool, attend: Attend, rotation: nn.Module | None = None
    ) -> None:
        super().__init__(sizes, bias, attend, rotation)
        self.behind, self.ahead = reach, reach if self.looks_ahead else 0
        self.block = max(reach, SMALLEST_BLOCK)  # as long as its margins: a key is copied into at most three windows
        self.window = self.behind + self.block + self.ahead

    def mask(self, padding: Tensor) -> Mask:
        """``padding`` [B, 1, 1, T] is -inf where there is padding."""
        length, device = padding.size(-1), padding.device
        if length <= max(self.window, min(FEW_WINDOWS * self.window, SHORT)):
            return self._banded(padding)
        queries, keys = torch.arange(self.block, device=device), torch.arange(self.window, device=device) - self.behind
        outside, own = self._relation(queries, keys)
        column = padding.transpose(2, 3)  # [B, 1, T, 1]
        windows = self._windows((column[:, :, :0], column, column[:, :, :0]), fill=float("-inf"))  # [B*n, 1, w, 1]
        windows = windows.transpose(2, 3).view(padding.size(0), -1, 1, 1, self.window)
        block, whole = Places(queries, keys, length), whole_sequence(length, device)
        return BlockedMask(padding, whole, block=block, outside=outside, own=own, padding=windows)

    def attend_to(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: Weights) -> Tensor:
        if not isinstance(mask, BlockedMask):
            return super().attend_to(queries, keys, values, mask, record)
        if record is not None:  # the weights [B, H, T, T] are asked for: there is no saving them
            assert mask.bias is not None
            return super().attend_to(queries, keys, values, self._banded(mask.bias), record)
        sentences, positions = self._part(queries.size(0), queries.size(2))
        groups = zip(*(torch.split(x, sentences) for x in (queries, keys, values, mask.padding)))
        parts = [self._split(positions, *group) for group in groups]
        look: Callable[..., Tensor] = partial(self._look_from_blocks, mask)
        if torch.is_grad_enabled() and (len(parts) > 1 or len(parts[0]) > 1):
            look = partial(checkpoint, look, use_reentrant=False)  # made again in the backward pass, not kept
        rows = [torch.cat([look(*part) for part in group], 2) for group in parts]
        return torch.cat(rows) if len(rows) > 1 else rows[0]

    def _split(
        self, size: int, queries: Tensor, keys: Tensor, values: Tensor, padding: Tensor
    ) -> list[tuple[Tensor, Surrounded, Surrounded, Tensor]]:
        """Parts of ``size`` positions, as ``_look_from_blocks`` takes them."""
        paddings = torch.split(padding, size // self.block, 1)
        return [*zip(torch.split(queries, size, 2), _surrounded(keys, size), _surrounded(values, size), paddings)]

    def _look_from_blocks(
        self, whole: BlockedMask, queries: Tensor, keys: Surrounded, values: Surrounded, padding: Tensor
    ) -> Tensor:
        """``attend_to`` for a part of the sequence; ``padding`` [B, n, 1, 1, w]."""
        mask = Mask(_bias(padding.flatten(0, 1), whole.outside, whole.own), whole.block)
        padded = F.pad(queries, (0, 0, 0, -queries.size(2) % self.block))
        blocks = padded.view(*queries.shape[:2], -1, self.block, queries.size(3)).transpose(1, 2)  # [B, n, H, b, d_k]
        windows = self._windows(keys), self._windows(values)
        found = attended(self.attend, blocks.flatten(0, 1), *windows, mask)
        blocks = found.view(queries.size(0), -1, *found.shape[1:])  # [B, n, H, b, d_v]
        return blocks.transpose(1, 2).flatten(2, 3)[:, :, : queries.size(2)]

    def _part(self, sentences: int, length: int) -> tuple[int, int]:
        """Sentences and positions that are computed at a time: whole blocks.

        The copies of a part grow with the positions of all its sentences together. Where a block of every sentence
        would be too much of the batch, a part has fewer sentences.
        """
        if length <= SHORT:
            return sentences, -(-length // self.block) * self.block
        size = max(SMALLEST_PART, sentences * length // PARTS)
        positions = max(1, round(size / (sentences * self.block))) * self.block
        return min(sentences, max(1, size // positions)), positions

    def _banded(self, padding: Tensor) -> Mask:
        places = whole_sequence(padding.size(-1), padding.device)
        return Mask(_bias(padding, *self._relation(places.queries, places.keys)), places)

    def _relation(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Places [T] and [S] -> whether a key is outside of the neighbourhood, and whether it is the query's own [T, S]"""
        distances = keys[None, :] - queries[:, None]
        return (distances < -self.behind) | (distances > self.ahead), distances == 0

    def _windows(self, part: Surrounded, fill: float = 0.0) -> Tensor:
        """[B, H, T, d] -> [B*n, H, w, d]: block by block with its margins; ``fill`` stands beyond the sequence's ends."""
        before, x, after = part
        before, after = before[:, :, max(0, before.size(2) - self.behind) :], after[:, :, : self.ahead]
        missing = self.behind - before.size(2), -x.size(2) % self.block + self.ahead - after.size(2)
        padded = F.pad(torch.cat([before, x, after], 2), (0, 0, *missing), value=fill)
        windows = padded.unfold(2, self.window, self.block)  # [B, H, n, d, w]
        return windows.permute(0, 2, 1, 4, 3).flatten(0, 1)

    def flat_mask(self, segments: Segments) -> FlatMask:
        return within(segments, behind=self.behind, ahead=self.ahead)


class LocalSelfAttention(Local):
    """The encoder's: |i - j| <= r."""

    looks_ahead = True

    def padding_mask(self, padding: Tensor) -> Mask:
        return self.mask(padding)


class LocalCausalSelfAttention(Local, CausalSelfAttention):
    """The decoder's: 0 <= i - j <= r; in decoding the last r + 1 positions are kept."""

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
    """0 at real keys of the neighbourhood and at the query itself, -inf elsewhere.

    Padding sees itself: a row without any key would have no softmax.
    """
    return padding.masked_fill(outside, float("-inf")).masked_fill(own, 0.0)


def _surrounded(x: Tensor, size: int) -> list[Surrounded]:
    """Parts of a sequence, each between its neighbours; they are empty at the sequence's ends."""
    parts, nothing = torch.split(x, size, 2), x[:, :, :0]
    return [*zip((nothing, *parts[:-1]), parts, (*parts[1:], nothing))]
