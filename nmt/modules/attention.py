"""Multi-head attention: Vaswani et al. 2017, section 3.2.

Shapes: B sentences, K beam, N = B*K hypotheses, S keys, T queries, D model width, H heads.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.modules import native
from nmt.modules.autoregression import INITIAL_CAPACITY, Autoregression, Lineage, Past
from nmt.modules.dropout import Dropout
from nmt.modules.exact import Exact
from nmt.modules.flat_attention import attend_flat, head_fits
from nmt.modules.head_sizes import HeadSizes
from nmt.modules.key_value_cache import FixedKeyValueCache, KeyValueCache
from nmt.modules.linear import Linear, bf16_kernels_there, shapes_are_expensive
from nmt.modules.padding import causal_bias
from nmt.modules.plain import Function, overridden, plain, require_own
from nmt.modules.sight import FlatSight, Places, Segments, Sight, whole_sequence, within

# Positions from which on a CPU's fused kernel is faster, forward and backward, than the products written out.
LONG = {torch.float32: 256, torch.bfloat16: 1024}

# Positions from which on, on a CPU, products of attention in bf16 are worth a kernel for every shape (see linear.py).
LONG_FOR_BF16 = 64


class Attend(Exact, ABC):
    """softmax(scores) V inside the heads; a kind of attention is the way it scores.

    A subclass says how by ``scores``, and if need be by ``mix``; steps of decoding and every number format follow it.
    """

    plain_asks = frozenset({"scale"})

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    @property
    def flat(self) -> bool:
        """Whether it can do without padding (``FlatSight``) as it is set now."""
        return False

    @abstractmethod
    def scores(self, queries: Tensor, keys: Tensor, sight: Sight) -> Tensor:
        """[B, H, T, d_k] and [B, H, S, d_k] -> [B, H, T, S]"""

    def mix(self, weights: Tensor, values: Tensor, sight: Sight) -> Tensor:
        """[B, H, T, S] and [B, H, S, d_v] -> [B, H, T, d_v]"""
        return weights @ values

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None
    ) -> Tensor:
        """queries [B, H, T, d_k], keys [B, H, S, d_k], values [B, H, S, d_v] -> [B, H, T, d_v]

        ``record`` receives the weights [B, H, T, S].
        """
        if self.exactly:
            return self._exact(queries, keys, values, sight, record)
        weights = self._weights(queries, keys, sight)
        if record is not None:
            record.append(weights)
        return self.mix(self.dropout(weights), values, sight)

    def _weights(self, queries: Tensor, keys: Tensor, sight: Sight) -> Tensor:
        scores = self.scores(queries, keys, sight)
        return torch.softmax(scores if sight.bias is None else scores + sight.bias, dim=-1)

    def _exact(
        self, queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None
    ) -> Tensor:
        weights = self._weights(queries.double(), keys.double(), sight)
        if record is not None:
            record.append(weights.to(queries.dtype))
        return self.mix(weights, values.double(), sight).to(queries.dtype)


class ScaledDotProduct(Attend):
    """softmax(Q K^T / sqrt(d_k)) V: equation 1.

    On the CPU it is written out: at the length of sentences batched products are faster than the fused kernel, most of
    all in the backward pass; from ``LONG`` positions on they no longer are. Elsewhere a fused kernel runs, unless the
    weights are asked for: one for batches without padding where the model has made such, else one for batches with it.
    A subclass that replaces any part of the formula but the scale is written out everywhere, by its own parts.
    """

    @property
    def flat(self) -> bool:
        return self.by_equation_1 and (not self.training or self.dropout.p == 0.0)

    @property
    def by_equation_1(self) -> bool:
        """Whether kernels that know this formula, up to its scale, compute what the class says."""
        return overridden(type(self), ScaledDotProduct) <= self.plain_asks

    def scale(self, d_k: int) -> float:
        scale: float = d_k**-0.5
        return scale

    def scores(self, queries: Tensor, keys: Tensor, sight: Sight) -> Tensor:
        return (queries * self.scale(queries.size(-1))) @ keys.transpose(-1, -2)

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None
    ) -> Tensor:
        if isinstance(sight, FlatSight):
            return attend_flat(queries, keys, values, sight, self.scale(queries.size(-1)))
        if shapes_are_expensive(queries) and self._in_float32(queries, keys):
            with torch.autocast("cpu", enabled=False):
                return self.forward(queries.float(), keys.float(), values.float(), sight, record)
        if not self.by_equation_1 or self.exactly or record is not None or self._written_out(queries, keys):
            return super().forward(queries, keys, values, sight, record)
        mask = None if sight.bias is None else sight.bias.to(queries.dtype)
        dropout = self.dropout.p if self.training else 0.0
        scale = self.scale(queries.size(-1))
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=scale)

    def plain(self) -> Function:
        if torch.is_autocast_enabled("cpu"):
            return self.forward

        def attend(queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None) -> Tensor:
            if self.exactly or record is not None or not self._written_out(queries, keys):
                return self.forward(queries, keys, values, sight, record)
            scores = (queries * self.scale(queries.size(-1))) @ keys.transpose(-1, -2)
            if sight.bias is not None:
                scores += sight.bias
            return torch.softmax(scores, dim=-1) @ values

        return attend

    @staticmethod
    def _in_float32(queries: Tensor, keys: Tensor) -> bool:
        return not bf16_kernels_there() or max(queries.size(-2), keys.size(-2)) < LONG_FOR_BF16

    def _written_out(self, queries: Tensor, keys: Tensor) -> bool:
        """Without dropout, for which the fused kernel of a CPU would do the same more slowly."""
        if queries.device.type != "cpu":
            return False
        length = min(queries.size(-2), keys.size(-2))
        return length < LONG.get(queries.dtype, math.inf) or (self.training and self.dropout.p > 0.0)


class DotProduct(ScaledDotProduct):
    """softmax(Q K^T) V: without the scale, whose effect section 3.2.1 argues for."""

    def scale(self, d_k: int) -> float:
        return 1.0


def by_equation_1(attend: Attend) -> bool:
    """Whether kernels that know equation 1, up to its scale, compute what ``attend`` says."""
    return isinstance(attend, ScaledDotProduct) and attend.by_equation_1


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, T, H*d] -> [B, H, T, d]"""
    return x.view(*x.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, T, d] -> [B, T, H*d]"""
    return x.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Queries, keys and values from the same sequence, projected by one matrix.

    The rows of ``projection`` are W^Q, W^K and W^V one after the other, each by head.
    """

    def __init__(self, sizes: HeadSizes, bias: bool, attend: Attend, rotation: nn.Module | None = None) -> None:
        """``rotation``, if any, turns queries and keys by their positions."""
        super().__init__()
        self.sizes = sizes
        self.parts = (sizes.keys, sizes.keys, sizes.values)
        self.projection = Linear(sizes.d_model, sum(self.parts), bias=bias)
        self.output = Linear(sizes.values, sizes.d_model, bias=bias)
        self.attend = attend
        self.rotation = rotation
        _initialise(self.projection, self.parts)
        nn.init.xavier_uniform_(self.output.weight)

    def around(self, padding: Tensor) -> Sight:
        """The sight of every position of a sequence with padding; ``padding`` [B, 1, 1, S] is -inf there."""
        return Sight(padding, whole_sequence(padding.size(-1), padding.device))

    @property
    def flat(self) -> bool:
        """Whether it can do without padding."""
        return self.attend.flat and head_fits(self.sizes.d_k, self.sizes.d_v)

    def along(self, segments: Segments) -> FlatSight:
        """The same without padding."""
        return within(segments)

    def project(self, x: Tensor, sight: Sight) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, D] -> queries, keys, values [B, H, T, d]"""
        queries, keys, values = (
            split_heads(part, self.sizes.num_heads) for part in self.projection(x).split(self.parts, dim=-1)
        )
        if self.rotation is not None:
            queries, keys = self.rotation(queries, sight.places), self.rotation(keys, sight.places)
        return queries, keys, values

    def forward(self, x: Tensor, sight: Sight, record: list[Tensor] | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]"""
        attended: Tensor = self.output(merge_heads(self.look(*self.project(x, sight), sight, record)))
        return attended

    def look(self, queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None) -> Tensor:
        """[B, H, T, d_k], [B, H, T, d_k], [B, H, T, d_v] -> [B, H, T, d_v]"""
        attended: Tensor = self.attend(queries, keys, values, sight, record)
        return attended


class CausalSelfAttention(SelfAttention, Autoregression):
    """Each position sees itself and those before it: the decoder's self-attention, section 3.2.3.

    A target's own padding stands after every real position, so nothing real sees it.
    """

    def whole(self, x: Tensor) -> Sight:
        length = x.size(1)
        return Sight(causal_bias(length, x.dtype, x.device), whole_sequence(length, x.device))

    def along(self, segments: Segments) -> FlatSight:
        return within(segments, ahead=0)

    def start(self, sentences: int, beam: int, like: Tensor) -> Past:
        sizes = self.sizes
        if self._steps_natively and native.runs(like):
            return native.SlotCache.empty(sentences, beam, sizes.keys)
        return KeyValueCache.empty((sentences, sizes.num_heads, sizes.d_k, sizes.d_v), beam, INITIAL_CAPACITY, like)

    def start_fixed(self, sentences: int, beam: int, steps: int, like: Tensor) -> FixedKeyValueCache:
        sizes = self.sizes
        return FixedKeyValueCache.with_room((sentences, sizes.num_heads, sizes.d_k, sizes.d_v), beam, steps, like)

    def now(self, past: Past, lineage: Lineage) -> Sight:
        if isinstance(past, native.SlotCache):
            return native.SlotSight(
                None, Places(lineage.queries, lineage.queries, past.length + 1), slots=lineage.slots
            )
        assert isinstance(past, KeyValueCache)
        return lineage.sight(past.keys.dtype)

    @property
    def _steps_natively(self) -> bool:
        """Whether a step is plain attention over all that was written."""
        plain_scores = by_equation_1(self.attend) and self.rotation is None
        return type(self) is CausalSelfAttention and plain_scores and self.sizes.d_k == self.sizes.d_v

    def stepper(self) -> Callable[[Tensor, Past, Sight], tuple[Tensor, Past]]:
        require_own(self, "stepper", "forward")
        project, output, look = self._projector(), plain(self.output), self._looker()
        together, heads = plain(self.projection), self.sizes.num_heads
        scale = self.attend.scale(self.sizes.d_k) if isinstance(self.attend, ScaledDotProduct) else 1.0

        def step(x: Tensor, past: Past, sight: Sight) -> tuple[Tensor, Past]:
            if isinstance(past, native.SlotCache):
                assert isinstance(sight, native.SlotSight)
                seen, written = native.look_back(together(x), past, sight, heads, scale)
                return output(seen), written
            assert isinstance(past, KeyValueCache)
            queries, keys, values = project(x, sight)
            cache = past.append(keys, values)
            return output(merge_heads(look(queries, *cache.filled(), sight, None))), cache

        return step

    def _looker(self) -> Function:
        """As ``look``."""
        return self.look if "look" in overridden(type(self), CausalSelfAttention) else plain(self.attend)

    def _projector(self) -> Callable[[Tensor, Sight], Sequence[Tensor]]:
        """As ``project``."""
        replaced = "project" in overridden(type(self), CausalSelfAttention)
        if replaced or self.rotation is not None or self.sizes.d_k != self.sizes.d_v:
            return self.project
        together, heads, width = plain(self.projection), self.sizes.num_heads, self.sizes.d_k

        def project(x: Tensor, sight: Sight) -> Sequence[Tensor]:
            parts = together(x).view(x.size(0), x.size(1), 3, heads, width)
            return parts.permute(2, 0, 3, 1, 4).unbind()  # type: ignore[no-any-return]

        return project


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the memory."""

    plain_asks = frozenset({"project"})

    def __init__(self, sizes: HeadSizes, bias: bool, attend: Attend) -> None:
        super().__init__()
        self.sizes = sizes
        self.parts = (sizes.keys, sizes.values)
        self.query = Linear(sizes.d_model, sizes.keys, bias=bias)
        self.memory = Linear(sizes.d_model, sum(self.parts), bias=bias)  # rows: W^K, then W^V
        self.output = Linear(sizes.values, sizes.d_model, bias=bias)
        self.attend = attend
        _initialise(self.query, (sizes.keys,))
        _initialise(self.memory, self.parts)
        nn.init.xavier_uniform_(self.output.weight)

    @property
    def flat(self) -> bool:
        """Whether it can do without padding."""
        return self.attend.flat and head_fits(self.sizes.d_k, self.sizes.d_v)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> keys [B, H, S, d_k], values [B, H, S, d_v]: once for all queries."""
        keys, values = self.memory(memory).split(self.parts, dim=-1)
        return split_heads(keys, self.sizes.num_heads), split_heads(values, self.sizes.num_heads)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None = None
    ) -> Tensor:
        """x [B, T, D], or [B, K, D]: the K hypotheses of a sentence are K queries, so the memory keeps its B rows."""
        queries = split_heads(self.query(x), self.sizes.num_heads)
        projected: Tensor = self.output(merge_heads(self.attend(queries, keys, values, sight, record)))
        return projected

    def prepare(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """As ``project``, laid out for what ``plain`` gives."""
        keys, values = self.project(memory)
        if self._reads_natively(memory):
            return keys.float(), values.float()
        if not KeyValueCache.as_columns(keys):
            return keys.contiguous(), values.contiguous()
        return keys.transpose(2, 3).contiguous().transpose(2, 3), values.contiguous()

    def _reads_natively(self, like: Tensor) -> bool:
        own = not overridden(type(self), CrossAttention)  # another projection may have another layout
        return own and by_equation_1(self.attend) and self.sizes.d_k == self.sizes.d_v and native.runs(like)

    def plain(self) -> Function:
        packed = torch.empty(0)  # whose weights are no parameters computes in float32, on a CPU
        natively = self._reads_natively(next(self.query.parameters(), packed))
        query, output, attend, heads = plain(self.query), plain(self.output), plain(self.attend), self.sizes.num_heads
        scale = self.attend.scale(self.sizes.d_k) if isinstance(self.attend, ScaledDotProduct) else 1.0

        def read(x: Tensor, keys: Tensor, values: Tensor, sight: Sight, record: list[Tensor] | None) -> Tensor:
            queries = query(x)
            if natively and record is None:
                found: Tensor = output(native.look_across(queries, keys, values, sight.bias, scale))
                return found
            if natively:  # the memory is kept in float32
                keys, values = keys.to(queries.dtype), values.to(queries.dtype)
            attended = attend(split_heads(queries, heads), keys, values, sight, record)
            projected: Tensor = output(merge_heads(attended))
            return projected

        return read


def _initialise(linear: Linear, parts: tuple[int, ...]) -> None:
    """Xavier for each part of a joint projection, smaller by sqrt(2) so that early attention is almost even."""
    for part in torch.split(linear.weight.detach(), list(parts)):
        nn.init.xavier_uniform_(part, gain=2**-0.5)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
