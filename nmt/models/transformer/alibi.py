"""Attention with linear biases: Press et al. 2022, arXiv:2108.12409.

Shapes: B sentences, K beam, H heads, T queries, S keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.models.transformer.attention import Attend
from nmt.models.transformer.mask import Mask


class ALiBi(Attend):
    """softmax(scores - m_h |i - j|) V: each head h prefers what is near by its own slope m_h, and nothing is learned.

    Section 3 has the decoder alone, where only j <= i is seen. In the encoder the distance is the same in both
    directions, the first of the ways that the authors name for it. The bias travels in the mask, so whatever computes
    the inner attention computes it as ever, by the same kernels.
    """

    def __init__(self, attend: Attend, num_heads: int) -> None:
        """``attend`` scores without positions."""
        super().__init__(dropout=0.0)  # the inner one has dropout of its own
        self.attend = attend
        slopes_of_heads = torch.tensor(slopes(num_heads), dtype=torch.float64).to(torch.get_default_dtype())
        self.register_buffer("slopes", slopes_of_heads, persistent=False)
        self.slopes: Tensor

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        return self.attend.scores(queries, keys, mask) + self.bias(mask)

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: list[Tensor] | None = None
    ) -> Tensor:
        bias = self.bias(mask) if mask.bias is None else mask.bias + self.bias(mask)
        attended: Tensor = self.attend(queries, keys, values, Mask(bias, mask.places), record)
        return attended

    def bias(self, mask: Mask) -> Tensor:
        """-m_h |i - j|, [H, T, S]; in a step [B, H, K, S]"""
        assert mask.places is not None, "ALiBi is for self-attention"
        distances = (mask.places.queries[..., :, None] - mask.places.keys[..., None, :]).abs().unsqueeze(-3)
        # Half precision cannot count beyond 256 or 2,048, so the product is made before it is rounded.
        wide = torch.promote_types(self.slopes.dtype, torch.float32)
        return (distances * -self.slopes.to(wide)[:, None, None]).to(self.slopes.dtype)


def slopes(num_heads: int) -> list[float]:
    """m_1 ... m_H: a geometric series that starts at its own ratio 2^(-8 / H), if H is a power of two.

    Otherwise those of the next lower power of two, and then every second one of the next higher power's, from the first
    on, which lie between them.
    """
    power = 1 << (num_heads.bit_length() - 1)
    series = [2.0 ** (-8 * head / power) for head in range(1, power + 1)]
    between = [2.0 ** (-4 * head / power) for head in range(1, 2 * (num_heads - power), 2)]
    return series + between
