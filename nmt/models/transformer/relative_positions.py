"""Relative positions inside self-attention: Shaw et al. 2018, arXiv:1803.02155.

Shapes: B sentences, K beam, H heads, T queries, S keys, R distances that are told apart.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt.models.transformer.attention import Attend
from nmt.models.transformer.head_sizes import HeadSizes
from nmt.models.transformer.mask import Mask


class RelativeDotProduct(Attend):
    """e_ij = q_i (k_j + a^K_ij)^T / sqrt(d_k) and z_i = sum_j softmax(e_i)_j (v_j + a^V_ij): equations 4 and 3.

    a_ij is a learned vector of the distance j - i, clipped to -behind ... ahead (section 3.2). The paper clips to k in
    both directions; where nothing stands ahead, vectors for it would never be used. Each head has vectors of its own, as
    in the paper's base model. Instead of T S vectors, the products of queries with the R vectors are made and spread
    over the pairs, and the weights are gathered by distance before they meet the vectors (section 3.3 does it
    otherwise, with the same result), so no tensor is larger than the scores.
    """

    def __init__(self, sizes: HeadSizes, dropout: float, behind: int, ahead: int) -> None:
        super().__init__(dropout)
        self.behind, self.ahead = behind, ahead
        distances = behind + ahead + 1
        self.key_vectors = nn.Parameter(torch.empty(sizes.num_heads, distances, sizes.d_k))
        self.value_vectors = nn.Parameter(torch.empty(sizes.num_heads, distances, sizes.d_v))
        nn.init.normal_(self.key_vectors, std=sizes.d_k**-0.5)
        nn.init.normal_(self.value_vectors, std=sizes.d_v**-0.5)

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        scaled: Tensor = queries * queries.size(-1) ** -0.5
        by_distance: Tensor = scaled @ self.key_vectors.transpose(-1, -2)  # [B, H, T, R]
        scores: Tensor = scaled @ keys.transpose(-1, -2)
        spread = by_distance.gather(-1, self._distances(mask).expand(scores.shape))
        return scores + spread

    def mix(self, weights: Tensor, values: Tensor, mask: Mask) -> Tensor:
        by_distance = weights.new_zeros(*weights.shape[:-1], self.value_vectors.size(1))  # [B, H, T, R]
        by_distance = by_distance.scatter_add(-1, self._distances(mask).expand(weights.shape), weights)
        return weights @ values + by_distance @ self.value_vectors

    def _distances(self, mask: Mask) -> Tensor:
        """Rows of the tables, broadcasting to [B, H, T, S]."""
        assert mask.places is not None, "relative positions are for self-attention"
        distances = mask.places.keys[..., None, :] - mask.places.queries[..., :, None]  # [T, S] or [B, K, S]
        return (distances.clamp(-self.behind, self.ahead) + self.behind).unsqueeze(-3)
