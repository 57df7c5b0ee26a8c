"""Additive attention, and positions inside self-attention: relative, rotary, ALiBi and buckets.

Shapes: B sentences, K beam, H heads, T queries, S keys, R distinct distances.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from nmt.layers.buckets import bucket_of
from nmt.layers.embeddings import SinusoidalPositions
from nmt.layers.stack import recomputed
from nmt.models.transformer.attention import Attend
from nmt.models.transformer.config import HeadSizes, TransformerConfig
from nmt.models.transformer.mask import Mask, QueryKeyPositions, WeightRecord

CHUNK = 2**20  # elements of tanh(q + k) in memory at a time


class Additive(Attend):
    """softmax(v . tanh(q + k)) V: Bahdanau et al. 2015, appendix A.1.2; compared in Vaswani et al. 2017, 3.2.1.

    The matrices W and U of the paper are the projections of queries and keys. The hidden layer is d_k times as large as the
    scores: it is computed for a few queries at a time, and again in the backward pass.
    """

    not_maps = ("vector",)  # a vector v for each head

    def __init__(self, sizes: HeadSizes, dropout: float) -> None:
        super().__init__(dropout)
        self.vector = nn.Parameter(torch.empty(sizes.num_heads, sizes.d_k))
        nn.init.normal_(self.vector, std=sizes.d_k**-0.5)

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        dtype = self.vector.dtype  # float32 sums under autocast
        queries, keys = queries.to(dtype), keys.to(dtype)
        parts = torch.split(queries, max(1, CHUNK // max(1, keys.numel())), dim=2)
        return torch.cat([recomputed(self._scores, part, keys) for part in parts], dim=2)

    def _scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[B, H, t, d_k], [B, H, S, d_k] -> [B, H, t, S]"""
        hidden = torch.tanh(queries[:, :, :, None] + keys[:, :, None])  # [B, H, t, S, d_k]
        return (hidden * self.vector[:, None, None]).sum(-1)


class RelativeDotProduct(Attend):
    """e_ij = q_i (k_j + a^K_ij)^T / sqrt(d_k) and z_i = sum_j softmax(e_i)_j (v_j + a^V_ij): Shaw et al.
    2018, arXiv:1803.02155, equations 4 and 3.

    a_ij is a learned vector of the distance j - i, clipped to -behind ... ahead (section 3.2). The paper clips to k in
    both directions; a decoder needs no vectors ahead. Each head has separate vectors, as in the paper's base model. The
    products of queries with the R vectors are gathered for each pair, and the weights are summed by distance before they
    multiply the vectors. Section 3.3 computes the same differently. No tensor is larger than the scores.
    """

    applies_positions = True
    not_maps = ("key_vectors", "value_vectors")

    def __init__(self, sizes: HeadSizes, dropout: float, behind: int, ahead: int) -> None:
        super().__init__(dropout)
        self.behind, self.ahead = behind, ahead
        distances = behind + ahead + 1
        self.key_vectors = nn.Parameter(torch.empty(sizes.num_heads, distances, sizes.d_k))
        self.value_vectors = nn.Parameter(torch.empty(sizes.num_heads, distances, sizes.d_v))
        nn.init.normal_(self.key_vectors, std=sizes.d_k**-0.5)
        nn.init.normal_(self.value_vectors, std=sizes.d_v**-0.5)

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        scaled = queries * queries.size(-1) ** -0.5
        by_distance = scaled @ self.key_vectors.transpose(-1, -2)  # [B, H, T, R]
        scores = scaled @ keys.transpose(-1, -2)
        return scores + by_distance.gather(-1, self._distances(mask).expand(scores.shape))

    def mix(self, weights: Tensor, values: Tensor, mask: Mask) -> Tensor:
        by_distance = weights.new_zeros(*weights.shape[:-1], self.value_vectors.size(1))  # [B, H, T, R]
        by_distance = by_distance.scatter_add(-1, self._distances(mask).expand(weights.shape), weights)
        return weights @ values + by_distance @ self.value_vectors

    def _distances(self, mask: Mask) -> Tensor:
        """Return row numbers of the tables, broadcastable to [B, H, T, S]."""
        assert mask.positions is not None, "relative positions are for self-attention"
        distances = mask.positions.keys[..., None, :] - mask.positions.queries[..., :, None]  # [T, S] or [B, K, S]
        return (distances.clamp(-self.behind, self.ahead) + self.behind).unsqueeze(-3)


class Rotary(nn.Module):
    """Rotate each pair (x_2i, x_2i+1) of a query or key by m theta_i, with its position m and theta_i = 10000^(-2i / d_k).

    Su et al. 2021, arXiv:2104.09864, equation 34. The product of a query and a key then depends only on their distance.
    The angles are those of sinusoidal positions of width d_k.
    """

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.angles = SinusoidalPositions(d_k)

    def forward(self, x: Tensor, positions: QueryKeyPositions) -> Tensor:
        """[B, H, T, d_k] -> [B, H, T, d_k]"""
        # [1, T, d_k]; in a step [B, 1, K, d_k]
        angles = self.angles.at(positions.queries, positions.bound).unsqueeze(-3)
        sine, cosine = angles[..., 0::2], angles[..., 1::2]
        first, second = x[..., 0::2], x[..., 1::2]  # [B, H, T, d_k/2]
        rotated = torch.stack([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
        return rotated.flatten(-2).to(x.dtype)


class ALiBi(Attend):
    """softmax(scores - m_h |i - j|) V, with a fixed slope m_h for each head h.

    Press et al. 2022, arXiv:2108.12409. Section 3 defines it for decoders, where j <= i. In the encoder the bias is
    symmetric, the first option that the authors propose. The bias is added to the mask, so the inner attention can use any
    kernel.
    """

    applies_positions = True

    def __init__(self, attend: Attend, num_heads: int) -> None:
        """``attend``: the attention that the bias is added to."""
        super().__init__(dropout=0.0)  # the inner attention applies dropout
        self.attend = attend
        slopes_of_heads = torch.tensor(slopes(num_heads), dtype=torch.float64).to(torch.get_default_dtype())
        self.register_buffer("slopes", slopes_of_heads, persistent=False)
        self.slopes: Tensor

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        return self.attend.scores(queries, keys, mask) + self.bias(mask)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: WeightRecord = None) -> Tensor:
        bias = self.bias(mask) if mask.bias is None else mask.bias + self.bias(mask)
        return self.attend(queries, keys, values, Mask(bias, mask.positions), record)

    def bias(self, mask: Mask) -> Tensor:
        """-m_h |i - j|, [H, T, S]; in a step [B, H, K, S]"""
        assert mask.positions is not None, "ALiBi is for self-attention"
        distances = (mask.positions.queries[..., :, None] - mask.positions.keys[..., None, :]).abs().unsqueeze(-3)
        # Half precision cannot represent all integers above 256 (bf16) or 2,048 (fp16): multiply before rounding.
        wide = torch.promote_types(self.slopes.dtype, torch.float32)
        return (distances * -self.slopes.to(wide)[:, None, None]).to(self.slopes.dtype)


def slopes(num_heads: int) -> list[float]:
    """Return m_1 ... m_H: a geometric series with first element and ratio 2^(-8 / H) if H is a power of two.

    Otherwise the series of the next lower power of two, then every second element of the next higher power's series.
    """
    power = 1 << (num_heads.bit_length() - 1)
    series = [2.0 ** (-8 * head / power) for head in range(1, power + 1)]
    between = [2.0 ** (-4 * head / power) for head in range(1, 2 * (num_heads - power), 2)]
    return series + between


class NoBiases(nn.Module):
    """No biases of the mask."""

    flat = True

    def forward(self, mask: Mask) -> Mask:
        return mask


class BucketBiases(nn.Module):
    """Learned biases of the scores, one for each head and bucket of distances j - i: Raffel et al. 2020, arXiv:1910.10683,
    section 2.1.

    They are added to the mask once, and serve all layers of a stack.
    """

    flat = False  # whether it supports batches without padding
    not_maps = ("weight",)

    def __init__(self, config: TransformerConfig, ahead: bool) -> None:
        """``ahead``: keys may follow the query."""
        super().__init__()
        self.reach = config.bucket_distance
        self.weight = nn.Parameter(torch.empty(config.num_heads, config.position_buckets))
        nn.init.normal_(self.weight, std=config.d_model**-0.5)
        distances = np.arange(-self.reach, self.reach + 1)
        buckets = bucket_of(distances, config.position_buckets, self.reach, ahead=ahead)
        self.register_buffer("buckets", torch.from_numpy(buckets), persistent=False)
        self.buckets: Tensor

    def forward(self, mask: Mask) -> Mask:
        """Add the biases [H, T, S]; in a step [B, H, K, S]."""
        assert mask.positions is not None, "buckets are for self-attention"
        distances = mask.positions.keys[..., None, :] - mask.positions.queries[..., :, None]
        rows = self.buckets[distances.clamp(-self.reach, self.reach) + self.reach]
        bias = self.weight[:, rows].movedim(0, -3)  # [H, T, S] or [H, B, K, S] -> [H, T, S] or [B, H, K, S]
        return Mask(bias if mask.bias is None else mask.bias + bias, mask.positions)
