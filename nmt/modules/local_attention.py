"""Restricted self-attention: a position sees a neighbourhood of r positions. Vaswani et al. 2017, section 4, Table 1.

Long sequences are computed in blocks. The queries of a block see the keys of the block and of its margins, so time and
memory grow with the length, not with its square.

Shapes: B sentences, N hypotheses, H heads, T positions, n blocks of b positions, w = margins + b positions of a window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.modules.attention import Attend, CausalSelfAttention, HeadSizes, SelfAttention
from nmt.modules.autoregression import INITIAL_CAPACITY, Lineage, Past
from nmt.modules.key_value_cache import RecentKeyValueCache
from nmt.modules.sight import FlatSight, Places, Segments, Sight, whole_sequence, within

SMALLEST_BLOCK = 4


@dataclass(frozen=True)
class BlockedSight(Sight):
    """``bias`` [B, 1, 1, T] forbids padding alone; ``inside`` is what the queries of each block may see."""

    inside: Sight = Sight(None)  # bias [B*n, 1, b, w]


@dataclass(frozen=True)
class Neighbourhood:
    """Position i sees positions i - behind ... i + ahead of its sequence, and always itself."""

    behind: int
    ahead: int

    @property
    def block(self) -> int:
        """Blocks as long as the margin that they need: a key is copied into at most three windows."""
        return max(self.behind, SMALLEST_BLOCK)

    @property
    def window(self) -> int:
        return self.behind + self.block + self.ahead

    def sight(self, padding: Tensor) -> Sight:
        """``padding`` [B, 1, 1, T] is -inf where there is padding."""
        if padding.size(-1) <= self.window:
            return self._banded(padding)
        return BlockedSight(padding, whole_sequence(padding.size(-1), padding.device), self._blocked(padding))

    def look(
        self,
        attend: Attend,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        sight: Sight,
        record: list[Tensor] | None,
    ) -> Tensor:
        """[B, H, T, d_k], [B, H, T, d_k], [B, H, T, d_v] -> [B, H, T, d_v]"""
        if not isinstance(sight, BlockedSight):
            return attend(queries, keys, values, sight, record)  # type: ignore[no-any-return]
        if record is not None:  # the weights [B, H, T, T] are asked for: there is no saving them
            assert sight.bias is not None
            return attend(queries, keys, values, self._banded(sight.bias), record)  # type: ignore[no-any-return]
        attended = attend(self._blocks(queries), self._windows(keys), self._windows(values), sight.inside, None)
        return self._unblock(attended, queries)

    def _banded(self, padding: Tensor) -> Sight:
        places = whole_sequence(padding.size(-1), padding.device)
        return Sight(self._bias(places, padding), places)

    def _blocked(self, padding: Tensor) -> Sight:
        length, device = padding.size(-1), padding.device
        queries = torch.arange(self.block, device=device)
        keys = torch.arange(self.window, device=device) - self.behind
        places = Places(queries, keys, length)  # of the first block; the others only differ by a shift
        windows = F.pad(padding[:, 0, 0], self._margins(length), value=float("-inf")).unfold(1, self.window, self.block)
        return Sight(self._bias(places, windows.reshape(-1, 1, 1, self.window)), places)

    def _bias(self, places: Places, padding: Tensor) -> Tensor:
        """0 at real keys of the neighbourhood and at the query itself, -inf elsewhere.

        Padding sees itself: a row without any key would have no softmax.
        """
        distances = places.keys[None, :] - places.queries[:, None]
        outside = (distances < -self.behind) | (distances > self.ahead)
        return padding.masked_fill(outside, float("-inf")).masked_fill(distances == 0, 0.0)

    def _margins(self, length: int) -> tuple[int, int]:
        """The padding before and behind a sequence that makes whole windows of it."""
        return self.behind, -length % self.block + self.ahead

    def _blocks(self, x: Tensor) -> Tensor:
        """[B, H, T, d] -> [B*n, H, b, d]"""
        padded = F.pad(x, (0, 0, 0, -x.size(2) % self.block))
        return padded.view(*x.shape[:2], -1, self.block, x.size(3)).transpose(1, 2).flatten(0, 1)

    def _windows(self, x: Tensor) -> Tensor:
        """[B, H, T, d] -> [B*n, H, w, d]: block by block with its margins."""
        windows = F.pad(x, (0, 0, *self._margins(x.size(2)))).unfold(2, self.window, self.block)  # [B, H, n, d, w]
        return windows.permute(0, 2, 1, 4, 3).flatten(0, 1)

    def _unblock(self, x: Tensor, like: Tensor) -> Tensor:
        """[B*n, H, b, d] -> [B, H, T, d]"""
        blocks = x.view(like.size(0), -1, *x.shape[1:])  # [B, n, H, b, d]
        return blocks.transpose(1, 2).flatten(2, 3)[:, :, : like.size(2)]


class LocalSelfAttention(SelfAttention):
    """The encoder's: |i - j| <= r."""

    def __init__(
        self, neighbourhood: int, sizes: HeadSizes, bias: bool, attend: Attend, rotation: nn.Module | None = None
    ) -> None:
        super().__init__(sizes, bias, attend, rotation)
        self.neighbourhood = Neighbourhood(behind=neighbourhood, ahead=neighbourhood)

    def along(self, segments: Segments) -> FlatSight:
        return within(segments, behind=self.neighbourhood.behind, ahead=self.neighbourhood.ahead)

    def around(self, padding: Tensor) -> Sight:
        return self.neighbourhood.sight(padding)

    def look(self, queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None) -> Tensor:
        return self.neighbourhood.look(self.attend, queries, keys, values, sight, record)


class LocalCausalSelfAttention(CausalSelfAttention):
    """The decoder's: 0 <= i - j <= r; in decoding the last r + 1 positions are kept."""

    def __init__(
        self, neighbourhood: int, sizes: HeadSizes, bias: bool, attend: Attend, rotation: nn.Module | None = None
    ) -> None:
        super().__init__(sizes, bias, attend, rotation)
        self.neighbourhood = Neighbourhood(behind=neighbourhood, ahead=0)

    def along(self, segments: Segments) -> FlatSight:
        return within(segments, behind=self.neighbourhood.behind, ahead=0)

    def whole(self, x: Tensor) -> Sight:
        return self.neighbourhood.sight(x.new_zeros(x.size(0), 1, 1, x.size(1)))

    def look(self, queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None) -> Tensor:
        return self.neighbourhood.look(self.attend, queries, keys, values, sight, record)

    def start(self, sentences: int, beam: int, like: Tensor) -> RecentKeyValueCache:
        window = self.neighbourhood.behind + 1
        sizes = (sentences, self.sizes.num_heads, self.sizes.d_k, self.sizes.d_v)
        cache = RecentKeyValueCache.empty(sizes, beam, min(INITIAL_CAPACITY, window), like)
        cache.window = window
        return cache

    def now(self, past: Past, lineage: Lineage) -> Sight:
        if isinstance(past, RecentKeyValueCache):
            return lineage.sight(past.keys.dtype, past.steps())
        sight = super().now(past, lineage)  # of everything: there is room for it
        assert sight.bias is not None and sight.places is not None
        distances = sight.places.queries[:, None, :, None] - sight.places.keys  # [B, 1, K, S*K]
        bias = sight.bias.masked_fill(distances > self.neighbourhood.behind, float("-inf"))
        return replace(sight, bias=bias)
