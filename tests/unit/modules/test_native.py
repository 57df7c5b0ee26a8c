"""Attention of a step in C gives what torch gives."""

from __future__ import annotations

import pytest
import torch

from nmt.modules import native
from nmt.modules.attention import CausalSelfAttention, CrossAttention, DotProduct, ScaledDotProduct
from nmt.modules.autoregression import BeamHistory
from nmt.modules.head_sizes import HeadSizes
from nmt.modules.key_value_cache import KeyValueCache
from nmt.modules.padding import padding_bias
from nmt.modules.mask import Mask
from nmt.native.library import SWITCH, forget

LIKE = torch.zeros(1)

built = pytest.mark.skipif(not native.runs(LIKE), reason="the C part was not built: no C compiler")


@built
@pytest.mark.parametrize("attend", [ScaledDotProduct, DotProduct])
@pytest.mark.parametrize(("heads", "width"), [(2, 32), (3, 64), (2, 5)])
@pytest.mark.parametrize("beam", [1, 3])
def test_steps_equal_all_positions_at_once(attend: type[ScaledDotProduct], heads: int, width: int, beam: int) -> None:
    """Beyond the first capacity, with slots that change and a sentence that leaves."""
    torch.manual_seed(1)
    d_model, sentences = 12, 3
    attention = CausalSelfAttention(HeadSizes(d_model, heads, width, width), True, attend(0.0)).eval()
    history, cache = BeamHistory.start(sentences, beam, LIKE), attention.start(sentences, beam, LIKE)
    assert isinstance(cache, native.SlotCache)
    step, inputs = attention.stepper(), torch.zeros(sentences * beam, 0, d_model)
    with torch.inference_mode():
        for position in range(40):
            x = torch.randn(sentences, beam, d_model)
            inputs = torch.cat([inputs, x.view(-1, 1, d_model)], 1)
            history = history.entered()
            found, cache = step(x, cache, attention.step_mask(cache, history))
            history = history.passed()
            expected = attention(inputs, attention.causal_mask(inputs))[:, -1]
            torch.testing.assert_close(found.flatten(0, 1), expected, atol=2e-6, rtol=1e-4)
            rows = torch.randint(beam, (sentences, beam)) + torch.arange(0, sentences * beam, beam)[:, None]
            if position == 20:
                rows, sentences = rows[[0, 2]], 2
            history, cache, inputs = history.rows(rows.flatten()), cache.rows(rows.flatten()), inputs[rows.flatten()]


@built
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_is_read_as_by_torch(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    attention = CrossAttention(HeadSizes(16, 2, 32, 32), True, ScaledDotProduct(0.0)).eval()
    memory, x = torch.randn(3, 9, 16), torch.randn(3, 4, 16)
    bias = padding_bias(torch.tensor([9, 4, 1]), 9, torch.float32)[:, None, None]
    expected = attention(x, *attention.project(memory), Mask(bias))
    attention, memory, x, bias = attention.to(dtype), memory.to(dtype), x.to(dtype), bias.to(dtype)
    keys, values = attention.prepare(memory)
    kept = torch.tensor([2, 0])
    with torch.inference_mode():
        found = attention.plain()(x, keys, values, Mask(bias), None)
        fewer = attention.plain()(x[kept], keys[kept], values[kept], Mask(bias[kept]), None)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, atol=1e-5 if dtype == torch.float32 else 0.05, rtol=1e-4)
    torch.testing.assert_close(fewer, found[kept], atol=0, rtol=0)  # of a sentence alone


@built
def test_large_scores_neither_overflow_nor_vanish() -> None:
    queries, keys, values = torch.full((1, 1, 8), 30.0), torch.zeros(1, 1, 3, 8), torch.randn(1, 1, 3, 8)
    keys[0, 0, 1] = 30.0  # a score of 7200 among zeros
    keys[0, 0, 2] = -30.0
    found = native.look_across(queries, keys, values, None, 1.0)
    torch.testing.assert_close(found[0, 0], values[0, 0, 1])


def test_torch_computes_where_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    forget()
    try:
        attention = CausalSelfAttention(HeadSizes(8, 2, 4, 4), True, ScaledDotProduct(0.0))
        assert isinstance(attention.start(2, 3, LIKE), KeyValueCache)
        assert not native.runs(LIKE)
    finally:
        forget()
