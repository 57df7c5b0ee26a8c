"""Multi-head attention against loops in NumPy."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.layers.padding import padding_bias
from nmt.models.transformer.attention import (
    CausalSelfAttention,
    CrossAttention,
    DotProduct,
    ScaledDotProduct,
    SelfAttention,
)
from nmt.models.transformer.autoregression import KeyValueCache
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.mask import Mask
from tests.unit.models.transformer.stepping import assert_steps_equal_the_whole

SIZES = HeadSizes(d_model=6, num_heads=2, d_k=3, d_v=5)
Array = npt.NDArray[np.float64]


def attend_slowly(queries: Array, keys: Array, values: Array, allowed: npt.NDArray[np.bool_]) -> Array:
    """Equation 1, one number at a time: queries [T, d_k], keys [S, d_k], values [S, d_v], allowed [T, S]."""
    result = np.zeros((len(queries), values.shape[1]))
    for t in range(len(queries)):
        exponentials = [
            math.exp(sum(queries[t, i] * keys[s, i] for i in range(keys.shape[1])) / math.sqrt(keys.shape[1]))
            if allowed[t, s]
            else 0.0
            for s in range(len(keys))
        ]
        for s, exponential in enumerate(exponentials):
            result[t] += exponential / sum(exponentials) * values[s]
    return result


def multi_head_slowly(
    x: Array, memory: Array, weights: tuple[Array, Array, Array, Array], allowed: npt.NDArray[np.bool_]
) -> Array:
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(x W_i^Q, memory W_i^K, memory W_i^V)."""
    query, key, value, output = weights
    heads = []
    for head in range(SIZES.num_heads):
        k, v = slice(head * SIZES.d_k, (head + 1) * SIZES.d_k), slice(head * SIZES.d_v, (head + 1) * SIZES.d_v)
        heads.append(attend_slowly(x @ query[k].T, memory @ key[k].T, memory @ value[v].T, allowed))
    joined: Array = np.concatenate(heads, axis=1) @ output.T
    return joined


def causal(bias: bool = False, dropout: float = 0.0) -> CausalSelfAttention:
    return CausalSelfAttention(SIZES, bias, ScaledDotProduct(dropout))


def array(tensor: Tensor) -> Array:
    converted: Array = tensor.detach().numpy()
    return converted


def test_self_attention_equals_the_loops() -> None:
    attention = causal().double()
    x = torch.randn(4, 6, dtype=torch.float64)
    query, key, value = attention.projection.weight.split([6, 6, 10])
    weights = (array(query), array(key), array(value), array(attention.output.weight))
    expected = multi_head_slowly(array(x), array(x), weights, np.tril(np.ones((4, 4), dtype=bool)))
    found = attention(x[None], attention.causal_mask(x[None]))[0]
    np.testing.assert_allclose(array(found), expected, rtol=1e-10)


def test_the_encoder_sees_everything_but_padding() -> None:
    attention = SelfAttention(SIZES, False, ScaledDotProduct(0.0)).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    query, key, value = attention.projection.weight.split([6, 6, 10])
    weights = (array(query), array(key), array(value), array(attention.output.weight))
    real = np.tile(np.array([True, True, True, False]), (4, 1))
    padding = padding_bias(torch.tensor([3]), 4, x.dtype)[:, None, None]
    found = attention(x[None], attention.padding_mask(padding))[0]
    np.testing.assert_allclose(array(found), multi_head_slowly(array(x), array(x), weights, real), rtol=1e-10)


def test_cross_attention_equals_the_loops() -> None:
    attention = CrossAttention(SIZES, False, ScaledDotProduct(0.0)).double()
    x, memory = torch.randn(3, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    key, value = attention.memory.weight.split([6, 10])
    weights = (array(attention.query.weight), array(key), array(value), array(attention.output.weight))
    real = np.array([True, True, True, False, False])
    expected = multi_head_slowly(array(x), array(memory), weights, np.tile(real, (3, 1)))
    bias = padding_bias(torch.tensor([3]), 5, x.dtype)[:, None, None]
    found = attention(x[None], *attention.project(memory[None]), Mask(bias))[0]
    np.testing.assert_allclose(array(found), expected, rtol=1e-10)


def test_hypotheses_of_a_sentence_are_its_queries() -> None:
    attention = CrossAttention(SIZES, True, ScaledDotProduct(0.0)).double()
    memory, x = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    bias = padding_bias(torch.tensor([3, 5]), 5, x.dtype)[:, None, None]
    together = attention(x, *attention.project(memory), Mask(bias))
    tiled = attention.project(memory.repeat_interleave(3, 0))
    one_by_one = attention(x.view(6, 1, 6), *tiled, Mask(bias.repeat_interleave(3, 0)))
    torch.testing.assert_close(together.view(6, 1, 6), one_by_one)


def test_the_written_out_product_equals_the_fused_kernel() -> None:
    queries, keys, values = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 7)
    bias = padding_bias(torch.tensor([4, 6]), 6, torch.float32)[:, None, None]
    found = ScaledDotProduct(0.3).eval()(queries, keys, values, Mask(bias), None)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias))


def test_without_a_scale_the_scores_are_larger_by_the_root_of_the_width() -> None:
    queries, keys, values = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 7)
    scaled = ScaledDotProduct(0.0)(queries * math.sqrt(5), keys, values, Mask(None), None)
    torch.testing.assert_close(DotProduct(0.0)(queries, keys, values, Mask(None), None), scaled)


def test_recorded_weights_are_distributions_over_what_is_allowed() -> None:
    record: list[Tensor] = []
    attention, x = causal(), torch.randn(2, 4, 6)
    attention(x, attention.causal_mask(x), record)
    (weights,) = record
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 4))
    assert not weights.triu(1).any()


def test_dropout_applies_to_the_weights_in_training_only() -> None:
    attention, x = causal(dropout=0.5), torch.randn(2, 4, 6)
    mask = attention.causal_mask(x)
    assert not torch.equal(attention.train()(x, mask), attention(x, mask))
    assert torch.equal(attention.eval()(x, mask), attention(x, mask))


@pytest.mark.parametrize("beam", [1, 4])
def test_steps_with_a_cache_equal_all_positions_at_once(beam: int) -> None:
    # More steps than the first capacity, so the cache grows.
    assert_steps_equal_the_whole(causal(bias=True), 6, steps=40, beam=beam)


def test_a_cache_copies_nothing_until_a_sentence_leaves() -> None:
    cache = KeyValueCache(torch.randn(3, 2, 5, 16, 2), torch.randn(3, 2, 16, 2, 5), length=4)
    assert cache.rows(torch.tensor([1, 0, 2, 2, 4, 5])) is cache
    left = cache.rows(torch.tensor([1, 0, 5, 4]))
    torch.testing.assert_close(left.keys, cache.keys[[0, 2]])
    torch.testing.assert_close(left.values, cache.values[[0, 2]])


def test_a_row_that_sees_one_position_copies_its_value() -> None:
    values = torch.randn(1, 1, 3, 4)
    bias = torch.tensor([[0.0, -math.inf, -math.inf]])
    found = ScaledDotProduct(0.0)(torch.randn(1, 1, 1, 4), torch.randn(1, 1, 3, 4), values, Mask(bias), None)
    torch.testing.assert_close(found[0, 0, 0], values[0, 0, 0])


@pytest.mark.parametrize("bias", [False, True])
def test_biases_exist_when_asked_for(bias: bool) -> None:
    names = {name for name, _ in causal(bias).named_parameters()}
    assert ("projection.bias" in names) == bias
    assert ("output.bias" in names) == bias


@pytest.mark.parametrize(("kind", "starved"), [(DotProduct, True), (ScaledDotProduct, False)])
def test_without_the_scale_wide_heads_starve_the_gradient(kind: type[ScaledDotProduct], starved: bool) -> None:
    """Section 3.2.1: products of unit variance grow with d_k and push the softmax to where its gradient vanishes."""

    def gradient_of_scores(d_k: int) -> float:
        torch.manual_seed(1)
        scores = kind(0.0).scores(torch.randn(1, 1, 200, d_k), torch.randn(1, 1, 20, d_k), Mask(None)).detach()
        weights = scores.requires_grad_().softmax(-1)
        (gradient,) = torch.autograd.grad((weights * torch.randn(20)).sum(), scores)
        return gradient.abs().mean().item()

    assert (gradient_of_scores(512) < 0.25 * gradient_of_scores(4)) is starved


@pytest.mark.parametrize(
    ("queries", "keys", "fused"), [(300, 300, 1), (256, 300, 1), (255, 300, 0), (300, 255, 0), (4, 300, 0)]
)
@pytest.mark.parametrize("causal_too", [False, True])
def test_long_sequences_take_the_fused_kernel_of_a_cpu_and_change_nothing(
    queries: int, keys: int, fused: int, causal_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output and gradients, of padded sentences, against the products written out."""
    calls = []
    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *given, **named: [calls.append(1), kernel(*given, **named)][1]
    )
    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(2, 2, length, 8, generator=generator).requires_grad_() for length in (queries, keys, keys)]
    bias = padding_bias(torch.tensor([keys, keys - 100]), keys, torch.float32)[:, None, None]
    if causal_too:
        bias = bias + torch.full((queries, keys), -math.inf).triu(1)
    weights: list[Tensor] = []
    attend, upstream = ScaledDotProduct(0.0), torch.randn(2, 2, queries, 8, generator=generator)
    found = attend(*parts, Mask(bias=bias), None)
    assert len(calls) == fused
    expected = attend(*parts, Mask(bias=bias), weights)
    assert len(calls) == fused and len(weights) == 1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    both = [torch.autograd.grad(output, parts, upstream, retain_graph=True) for output in (found, expected)]
    for one, other in zip(*both):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_with_dropout_long_sequences_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "scaled_dot_product_attention", None)
    queries = torch.randn(1, 1, 300, 4)
    attend = ScaledDotProduct(0.5)
    assert attend(queries, queries, queries, Mask(bias=None), None).shape == queries.shape
