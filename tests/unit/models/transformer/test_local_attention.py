"""Restricted self-attention: blocks against the band mask, memory against length, the trimmed cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
from live_bytes import LiveBytes
from torch import Tensor

from nmt.layers.padding import padding_bias
from nmt.models.transformer.attention import Attend, CausalSelfAttention, ScaledDotProduct, SelfAttention
from nmt.models.transformer.attention_kinds import Additive, RelativeDotProduct, Rotary
from nmt.models.transformer.autoregression import BeamHistory, LayerCache, RecentKeyValueCache
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.local_attention import BlockedMask, LocalCausalSelfAttention, LocalSelfAttention
from nmt.models.transformer.mask import Mask, whole_sequence
from tests.unit.models.transformer.stepping import assert_steps_equal_the_whole

SIZES = HeadSizes(d_model=6, num_heads=2, d_k=4, d_v=5)
LENGTHS = (37, 5)


def encoder(neighborhood: int, attend: Attend | None = None) -> LocalSelfAttention:
    return LocalSelfAttention(neighborhood, SIZES, True, attend or ScaledDotProduct(0.0))


def decoder(neighborhood: int, attend: Attend | None = None) -> LocalCausalSelfAttention:
    return LocalCausalSelfAttention(neighborhood, SIZES, True, attend or ScaledDotProduct(0.0))


def padding(lengths: tuple[int, ...] = LENGTHS) -> Tensor:
    return padding_bias(torch.tensor(lengths), max(lengths), torch.get_default_dtype())[:, None, None]


def real(x: Tensor) -> Tensor:
    return torch.cat([row[:length] for row, length in zip(x, LENGTHS)])


def band(length: int, behind: int, ahead: int) -> Tensor:
    """[T, T] -inf where a key stands outside the neighborhood, written as a loop."""
    bias = torch.full((length, length), float("-inf"))
    for query in range(length):
        for key in range(length):
            if -behind <= key - query <= ahead:
                bias[query, key] = 0.0
    return bias


@pytest.mark.parametrize("neighborhood", [1, 2, 3, 5, 8, 11, 12, 40])
def test_the_encoders_blocks_equal_the_band_mask(neighborhood: int) -> None:
    attention, x = encoder(neighborhood), torch.randn(2, 37, 6)
    masked = Mask(padding() + band(37, neighborhood, neighborhood), whole_sequence(37, x.device))
    expected = real(SelfAttention.attend_to(attention, *attention.project(x, masked), masked, None)[0].transpose(0, 1))
    mask = attention.padding_mask(padding())
    found = real(attention.attend_to(*attention.project(x, mask), mask, None)[0].transpose(0, 1))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("neighborhood", [1, 2, 3, 5, 8, 11, 18, 40])
def test_the_decoders_blocks_equal_the_band_mask(neighborhood: int) -> None:
    attention, x = decoder(neighborhood), torch.randn(2, 37, 6)
    masked = Mask(band(37, neighborhood, 0), whole_sequence(37, x.device))
    queries, keys, values = attention.project(x, masked)
    expected = SelfAttention.attend_to(attention, queries, keys, values, masked, None)
    found = attention.attend_to(queries, keys, values, attention.causal_mask(x), None)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


ATTENDS = {
    "additive": lambda ahead: Additive(SIZES, 0.0),
    "relative": lambda ahead: RelativeDotProduct(SIZES, 0.0, behind=2, ahead=2 * ahead),
}


@pytest.mark.parametrize("kind", ATTENDS)
def test_blocks_equal_the_band_mask_with_every_kind_of_scores(kind: str) -> None:
    x = torch.randn(2, 37, 6)
    for attention, mask, ahead in (
        (source := encoder(3, ATTENDS[kind](1)), source.padding_mask(padding((37, 37))), 3),
        (target := decoder(3, ATTENDS[kind](0)), target.causal_mask(x), 0),
    ):
        masked = Mask(band(37, 3, ahead), whole_sequence(37, x.device))
        queries, keys, values = attention.project(x, mask)
        expected = SelfAttention.attend_to(attention, queries, keys, values, masked, None)
        assert isinstance(mask, BlockedMask)
        torch.testing.assert_close(attention.attend_to(queries, keys, values, mask, None), expected, atol=1e-6, rtol=0)


LONG = 203  # positions: several parts, the last of which is neither whole nor of whole blocks
PARTED = pytest.mark.parametrize("neighborhood", [3, 24, 33])


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.models.transformer.local_attention.SMALLEST_PART", 8)
    monkeypatch.setattr("nmt.models.transformer.local_attention.SHORT", 0)


def look_and_gradients(look: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """What it returns, and the gradients of its inputs."""
    found = look(*inputs)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype)
    return [found, *torch.autograd.grad((found * weights).sum(), inputs)]


@PARTED
@pytest.mark.parametrize("kind", ["plain", *ATTENDS])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_parts_equal_the_band_mask_in_values_and_gradients(
    side: str, kind: str, neighborhood: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    ahead = neighborhood if side == "encoder" else 0
    attend = ATTENDS[kind](ahead) if kind in ATTENDS else ScaledDotProduct(0.0)
    attention = (encoder if side == "encoder" else decoder)(neighborhood, attend).double()
    masked = Mask(band(LONG, neighborhood, ahead).double(), whole_sequence(LONG, torch.device("cpu")))
    mask = attention.mask(torch.zeros(2, 1, 1, LONG, dtype=torch.float64))
    widths = (SIZES.d_k, SIZES.d_k, SIZES.d_v)
    inputs = [torch.randn(2, 2, LONG, width, dtype=torch.float64, requires_grad=True) for width in widths]
    inputs += list(attend.parameters())
    found = look_and_gradients(lambda q, k, v, *_: attention.attend_to(q, k, v, mask, None), inputs)
    expected = look_and_gradients(lambda q, k, v, *_: SelfAttention.attend_to(attention, q, k, v, masked, None), inputs)
    torch.testing.assert_close(found, expected)


def test_parts_see_no_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, x = encoder(5), torch.randn(2, LONG, 6)
    mask = attention.padding_mask(padding((LONG, 90)))
    whole = attention(x, mask)
    small_parts(monkeypatch)
    torch.testing.assert_close(attention(x, mask), whole, atol=1e-6, rtol=0)
    changed = x.clone()
    changed[1, 90:] += 1
    torch.testing.assert_close(attention(changed, mask)[1, :90], whole[1, :90], atol=1e-6, rtol=0)


def test_the_backward_pass_of_parts_drops_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the weights that were left the result is linear in the values: their gradient gives it back."""
    small_parts(monkeypatch)
    attention = encoder(5, ScaledDotProduct(0.5)).double().train()
    mask = attention.padding_mask(torch.zeros(1, 1, 1, LONG, dtype=torch.float64))
    queries, keys = (torch.randn(1, 2, LONG, SIZES.d_k, dtype=torch.float64) for _ in range(2))
    values = torch.randn(1, 2, LONG, SIZES.d_v, dtype=torch.float64, requires_grad=True)
    found = attention.attend_to(queries, keys, values, mask, None).sum()
    (gradient,) = torch.autograd.grad(found, values)
    torch.testing.assert_close((gradient * values).sum(), found)


def test_asking_for_the_weights_changes_nothing_and_gives_all_of_them() -> None:
    attention, x = encoder(2), torch.randn(2, 37, 6)
    mask, record = attention.padding_mask(padding()), list[Tensor]()
    torch.testing.assert_close(real(attention(x, mask, record)), real(attention(x, mask)), atol=1e-6, rtol=0)
    (weights,) = record
    assert weights.shape == (2, 2, 37, 37)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 37))
    outside = band(37, 2, 2).isinf()
    assert not weights[:, :, outside].any()


def test_gradients_are_finite_where_a_sentence_is_shorter_than_a_block() -> None:
    attention, x = encoder(2), torch.randn(2, 37, 6, requires_grad=True)
    real(attention(x, attention.padding_mask(padding()))).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    assert not x.grad[1, LENGTHS[1] :].any()  # padding


def peak_bytes(attention: SelfAttention, length: int, gradient: bool) -> int:
    """Of looking at a whole sequence, with or without the backward pass."""
    x = torch.randn(1, length, SIZES.d_model)
    with LiveBytes() as memory, torch.set_grad_enabled(gradient):
        causal = isinstance(attention, CausalSelfAttention)
        out = attention(x, attention.causal_mask(x) if causal else attention.padding_mask(padding((length,))))
        if gradient:
            out.sum().backward()
    return memory.peak


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("make", [encoder, decoder], ids=["encoder", "decoder"])
def test_memory_grows_linearly_with_length(make: Callable[[int], SelfAttention], gradient: bool) -> None:
    assert peak_bytes(make(4), 800, gradient) <= 2.1 * peak_bytes(make(4), 400, gradient)


RESTRICTED = {"encoder": LocalSelfAttention, "decoder": LocalCausalSelfAttention}
FULL = {"encoder": SelfAttention, "decoder": CausalSelfAttention}
SIDES = pytest.mark.parametrize("side", RESTRICTED)
BATCHES = pytest.mark.parametrize("batch", [1, 4])
NEIGHBORHOODS = pytest.mark.parametrize("neighborhood", [16, 64])


@cache
def peak(side: str, neighborhood: int | None, batch: int, length: int, heads: int = 1) -> int:
    """Bytes of a forward and a backward pass, in full attention without ``neighborhood``."""
    sizes = HeadSizes(d_model=64 * heads, num_heads=heads, d_k=64, d_v=64)
    kind = (sizes, False, ScaledDotProduct(0.0))
    attention: SelfAttention = FULL[side](*kind) if neighborhood is None else RESTRICTED[side](neighborhood, *kind)
    x, nothing = torch.randn(batch, length, sizes.d_model), torch.zeros(batch, 1, 1, length)
    with LiveBytes() as memory:
        mask = (
            attention.causal_mask(x) if isinstance(attention, CausalSelfAttention) else attention.padding_mask(nothing)
        )
        attention(x, mask).sum().backward()
    return memory.peak


@pytest.mark.slow
@SIDES
@BATCHES
@NEIGHBORHOODS
@pytest.mark.parametrize("length", [512, 1024])
def test_twice_the_length_takes_about_twice_the_memory(side: str, batch: int, neighborhood: int, length: int) -> None:
    growth = peak(side, neighborhood, batch, 2 * length) / peak(side, neighborhood, batch, length)
    assert 1.6 < growth < 2.1


@pytest.mark.slow
@SIDES
@BATCHES
@pytest.mark.parametrize(
    ("neighborhood", "length"),
    [
        pytest.param(r, n, marks=[pytest.mark.nightly] * (n > 1024))
        for r in (16, 64, 128, 256)
        for n in (512, 1024, 2048)
        if n > 3 * r  # more than a window
    ],
)
def test_long_sequences_take_no_more_memory_than_in_full_attention(
    side: str, batch: int, neighborhood: int, length: int
) -> None:
    """Although torch's fused kernel keeps no scores.

    Up to a few percent; by more only where a single block and its margins are much of all that there is. What they take
    grows with the neighborhood and not with the length.
    """
    of_block = 10_000 * neighborhood if side == "encoder" and batch * length < 24 * neighborhood else 0
    assert peak(side, neighborhood, batch, length) < 1.04 * peak(side, None, batch, length) + of_block


@pytest.mark.slow
@pytest.mark.parametrize("length", [1024, 2048, pytest.param(4096, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("heads", [1, 4])
def test_long_sequences_take_less_memory_than_in_full_attention(length: int, heads: int) -> None:
    assert peak("encoder", 16, 1, length, heads) < peak("encoder", None, 1, length, heads)


@pytest.mark.parametrize("neighborhood", [33, 40])
def test_parts_of_some_of_the_sentences_equal_the_band_mask(neighborhood: int) -> None:
    """Of three sentences a part has two, and then the one that is left."""
    attention, lengths = encoder(neighborhood).double(), torch.tensor((771, 31, 600))
    bias = padding(tuple(lengths.tolist())).double()
    mask = attention.padding_mask(bias)
    assert attention._part(3, 771)[0] == 2
    masked = (bias + band(771, neighborhood, neighborhood)).masked_fill(torch.eye(771, dtype=torch.bool), 0.0)
    there = torch.arange(771) < lengths[:, None]

    def real_rows(look: Callable[..., Tensor], mask: Mask) -> Callable[..., Tensor]:
        return lambda *qkv: look(*qkv, mask, None).transpose(1, 2)[there]

    widths = (SIZES.d_k, SIZES.d_k, SIZES.d_v)
    inputs = [torch.randn(3, 2, 771, width, dtype=torch.float64, requires_grad=True) for width in widths]
    found = look_and_gradients(real_rows(attention.attend_to, mask), inputs)
    whole = Mask(masked, whole_sequence(771, masked.device))
    expected = look_and_gradients(real_rows(partial(SelfAttention.attend_to, attention), whole), inputs)
    torch.testing.assert_close(found, expected)


def test_memory_of_full_attention_grows_with_the_square() -> None:
    """The measure sees what the blocks save."""
    full = SelfAttention(SIZES, True, ScaledDotProduct(0.0))
    assert peak_bytes(full, 800, True) > 3.5 * peak_bytes(full, 400, True)
    assert peak_bytes(full, 800, True) > 10 * peak_bytes(encoder(4), 800, True)


@pytest.mark.parametrize("neighborhood", [1, 3, 17, 30])
@pytest.mark.parametrize("kind", ["plain", "relative", "rotary"])
def test_steps_equal_all_positions_at_once(neighborhood: int, kind: str) -> None:
    attend = RelativeDotProduct(SIZES, 0.0, 2, 0) if kind == "relative" else ScaledDotProduct(0.0)
    rotation = Rotary(SIZES.d_k) if kind == "rotary" else None
    attention = LocalCausalSelfAttention(neighborhood, SIZES, True, attend, rotation)
    assert_steps_equal_the_whole(attention, 6, steps=40)


@pytest.mark.parametrize(("neighborhood", "columns"), [(3, 4), (15, 16), (20, 21), (300, 64)])
def test_the_cache_keeps_no_more_than_the_neighborhood(neighborhood: int, columns: int) -> None:
    attention, x = decoder(neighborhood), torch.randn(1, 1, 6)
    cache: LayerCache = attention.start(1, 1, x)
    history = BeamHistory.start(1, 1, x)
    for _ in range(40):
        history = history.entered()
        _, cache = attention.step(x, cache, attention.step_mask(cache, history))
        history = history.passed()
    assert isinstance(cache, RecentKeyValueCache)
    assert cache.values.size(2) == columns and cache.length == 40


@pytest.mark.parametrize(("length", "steps"), [(7, [6, 7, 5]), (1, [0, 1])])
def test_a_trimmed_cache_knows_which_step_stands_where(length: int, steps: list[int]) -> None:
    cache = RecentKeyValueCache(torch.zeros(2, 1, 1, 3, 1), torch.zeros(2, 1, 3, 1, 1), length=length, window=3)
    assert cache.steps().tolist() == steps
