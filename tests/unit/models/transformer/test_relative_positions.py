"""Relative positions against equations 3 and 4 of Shaw et al. 2018."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from nmt.models.transformer.attention import CausalSelfAttention
from nmt.models.transformer.attention_kinds import RelativeDotProduct
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.mask import Mask, whole_sequence
from tests.unit.models.transformer.stepping import assert_steps_equal_the_whole

SIZES = HeadSizes(d_model=6, num_heads=2, d_k=3, d_v=4)


@pytest.mark.parametrize(("behind", "ahead"), [(2, 2), (1, 0), (9, 9)])
def test_the_equations_pair_by_pair(behind: int, ahead: int) -> None:
    attend = RelativeDotProduct(SIZES, 0.0, behind, ahead).double()
    length = 6
    q, k, v = (torch.randn(1, 2, length, d, dtype=torch.float64) for d in (3, 3, 4))
    found = attend(q, k, v, Mask(None, whole_sequence(length, q.device)), None)
    for h in range(2):
        for i in range(length):
            row = [min(max(j - i, -behind), ahead) + behind for j in range(length)]
            a_k = [attend.key_vectors[h, r].detach().numpy() for r in row]
            a_v = [attend.value_vectors[h, r].detach().numpy() for r in row]
            e = [float(q[0, h, i].numpy() @ (k[0, h, j].numpy() + a_k[j])) / math.sqrt(3) for j in range(length)]
            weights = np.exp(e) / np.exp(e).sum()
            z = sum(weights[j] * (v[0, h, j].numpy() + a_v[j]) for j in range(length))
            np.testing.assert_allclose(found[0, h, i].detach().numpy(), z, rtol=1e-10)


def test_a_shift_of_the_whole_sequence_changes_nothing() -> None:
    attention = CausalSelfAttention(SIZES, False, RelativeDotProduct(SIZES, 0.0, 3, 0))
    x = torch.randn(1, 1, 6).expand(1, 9, 6)  # the same word everywhere
    found = attention(x, attention.causal_mask(x))[0]
    torch.testing.assert_close(found[4:], found[3:-1].lerp(found[4:], 1.0))
    assert not torch.allclose(found[1], found[0])  # one distance more to look at


def test_steps_equal_all_positions_at_once() -> None:
    assert_steps_equal_the_whole(CausalSelfAttention(SIZES, False, RelativeDotProduct(SIZES, 0.0, 3, 0)), 6)


def test_every_vector_of_a_decoder_is_used() -> None:
    attend = RelativeDotProduct(SIZES, 0.0, 3, 0)
    attention, x = CausalSelfAttention(SIZES, False, attend), torch.randn(1, 6, 6)
    attention(x, attention.causal_mask(x)).square().sum().backward()
    for vectors in (attend.key_vectors, attend.value_vectors):
        assert vectors.grad is not None and vectors.grad.abs().sum(-1).all()
