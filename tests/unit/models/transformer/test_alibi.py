"""Linear biases against the formula of Press et al. 2022, written as loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.layers.padding import causal_bias
from nmt.models.transformer.attention import Attend, CausalSelfAttention, DotProduct, ScaledDotProduct, SelfAttention
from nmt.models.transformer.attention_kernels import LONG
from nmt.models.transformer.attention_kinds import Additive, ALiBi, slopes
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.local_attention import BlockedMask, LocalCausalSelfAttention, LocalSelfAttention
from nmt.models.transformer.mask import Mask, whole_sequence
from tests.unit.models.transformer.stepping import assert_steps_equal_the_whole

SIZES = HeadSizes(d_model=6, num_heads=3, d_k=4, d_v=5)


def heads(length: int) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(2, 3, length, width, dtype=torch.float64) for width in (4, 4, 5))  # type: ignore[return-value]


def by_loops(queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> np.ndarray:
    """[B, H, T, d] -> [B, H, T, d_v], one pair of positions after the other; three heads have slopes 1/16, 1/256, 1/4."""
    q, k, v = queries.numpy(), keys.numpy(), values.numpy()
    found = np.zeros(v.shape)
    for b, h, i in np.ndindex(q.shape[:3]):
        seen = range(i + 1) if causal else range(k.shape[2])
        slope = (1 / 16, 1 / 256, 1 / 4)[h]
        weights = [math.exp(q[b, h, i] @ k[b, h, j] / 2 - slope * abs(i - j)) for j in seen]
        found[b, h, i] = sum(weight * v[b, h, j] for weight, j in zip(weights, seen)) / sum(weights)
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_attention_follows_the_formula(causal: bool) -> None:
    queries, keys, values = heads(7)
    bias = causal_bias(7, queries.dtype, queries.device) if causal else None
    found = ALiBi(ScaledDotProduct(0.0), 3).double()(
        queries, keys, values, Mask(bias, whole_sequence(7, queries.device))
    )
    np.testing.assert_allclose(found.numpy(), by_loops(queries, keys, values, causal=causal), rtol=1e-10)


def test_the_slopes_of_eight_heads_are_the_papers() -> None:
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_sixteen_heads_have_the_slopes_of_eight_and_their_geometric_means() -> None:
    np.testing.assert_allclose(slopes(16), [2 ** (-half / 2) for half in range(1, 17)])


def test_heads_beyond_a_power_of_two_have_slopes_of_the_next_one() -> None:
    assert slopes(12) == [*slopes(8), *slopes(16)[0:8:2]]


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 6, 7, 12, 20])
def test_every_head_has_a_slope_of_its_own(num_heads: int) -> None:
    assert len(set(slopes(num_heads))) == num_heads
    assert all(0 < slope < 1 for slope in slopes(num_heads))


@pytest.mark.parametrize("attend", [ScaledDotProduct(0.0), DotProduct(0.0), Additive(SIZES, 0.0)], ids=str)
def test_the_kernel_and_the_scores_agree(attend: Attend) -> None:
    """``scores`` with the mask's bias is what ``forward`` computes by the inner attention's kernel."""
    alibi, (queries, keys, values) = ALiBi(attend, 3).double(), heads(9)
    mask = Mask(causal_bias(9, queries.dtype, queries.device), whole_sequence(9, queries.device))
    torch.testing.assert_close(alibi(queries, keys, values, mask), Attend.forward(alibi, queries, keys, values, mask))


def test_long_sentences_are_computed_by_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    length, calls = LONG[torch.float32], []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def counted(*arguments: Tensor, **options: object) -> Tensor:
        calls.append(options["attn_mask"])
        result: Tensor = kernel(*arguments, **options)  # type: ignore[arg-type]
        return result

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    queries, keys, values = (x.float() for x in heads(length))
    mask = Mask(causal_bias(length, queries.dtype, queries.device), whole_sequence(length, queries.device))
    alibi = ALiBi(ScaledDotProduct(0.0), 3)
    found = alibi(queries, keys, values, mask)
    torch.testing.assert_close(found, Attend.forward(alibi, queries, keys, values, mask), atol=1e-5, rtol=1e-4)
    assert len(calls) == 1 and calls[0] is not None


def test_steps_equal_all_positions_at_once() -> None:
    assert_steps_equal_the_whole(CausalSelfAttention(SIZES, False, ALiBi(ScaledDotProduct(0.0), 3)), 6)


def test_steps_of_a_neighborhood_equal_all_positions_at_once() -> None:
    assert_steps_equal_the_whole(LocalCausalSelfAttention(4, SIZES, False, ALiBi(ScaledDotProduct(0.0), 3)), 6)


def test_blocks_of_a_long_sentence_equal_the_whole_matrix() -> None:
    attention = LocalSelfAttention(2, SIZES, False, ALiBi(ScaledDotProduct(0.0), 3)).double()
    mask = attention.padding_mask(torch.zeros(1, 1, 1, 40, dtype=torch.float64))
    x = torch.randn(1, 40, 6, dtype=torch.float64)
    assert isinstance(mask, BlockedMask)
    torch.testing.assert_close(attention(x, mask), attention(x, mask, []))  # weights are asked for: no blocks


def test_the_encoder_sees_a_mirrored_sentence_mirrored() -> None:
    """The biases are the same in both directions: only the words say which end is the first."""
    attention, x = SelfAttention(SIZES, False, ALiBi(ScaledDotProduct(0.0), 3)).double(), torch.randn(1, 5, 6).double()
    mask = attention.padding_mask(torch.zeros(1, 1, 1, 5, dtype=torch.float64))
    torch.testing.assert_close(attention(x.flip(1), mask), attention(x, mask).flip(1))


def test_biases_of_long_distances_are_exact_before_they_are_rounded_to_half_precision() -> None:
    alibi = ALiBi(ScaledDotProduct(0.0), 1).to(torch.bfloat16)
    found = alibi.bias(Mask(None, whole_sequence(1028, torch.device("cpu"))))
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found[0, 0].float(), torch.arange(1028) * -(2.0**-8), rtol=2**-8, atol=0)


def test_the_slopes_are_no_part_of_a_saved_model() -> None:
    assert not ALiBi(ScaledDotProduct(0.0), 4).state_dict()
