"""The attention of the C layers beside the formula of the paper, written out in float64."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import Tensor

from nmt.native.library import built
from tests.unit.native.levels import level, needs_library

__all__ = ["level"]  # a fixture

pytestmark = needs_library

# Heads and numbers of each: one register, several, and widths that fill none.
HEADS = [(3, 5), (2, 8), (4, 16), (2, 64), (1, 128)]
heads = pytest.mark.parametrize(("heads", "head"), HEADS)
with_biases = pytest.mark.parametrize("reach", [None, 5])  # of biases of distances
pointer, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class SharedKeys(ctypes.Structure):
    """As layers.h has it."""

    _fields_ = [("keys", pointer), ("values", pointer), *((name, count) for name in ("step", "seen", "heads", "head"))]
    _fields_ += [("scale", number), ("biases", pointer)]


class Biases(ctypes.Structure):
    """As layers.h has it."""

    _fields_ = [("of_heads", pointer), ("reach", count)]


class Past(ctypes.Structure):
    """As layers.h has it."""

    _fields_ = [(name, pointer) for name in ("keys", "values", "places", "slots")]
    _fields_ += [(name, count) for name in ("slots_row", "room", "steps", "beam")]


def attended(
    query: Tensor, keys: Tensor, values: Tensor, heads: int, scale: float, biases: Tensor | None = None, now: int = 0
) -> tuple[Tensor, Tensor]:
    """softmax((q k + bias) * scale) v by heads, of one query [D] over keys and values [T, D]; and the mean of the heads'
    shares. ``biases`` [H, 2 reach + 1]: by the distance of the keys from the position ``now``."""
    q, k, v = (tensor.double().unflatten(-1, (heads, -1)) for tensor in (query, keys, values))
    scores = torch.einsum("hd,thd->ht", q, k)
    if biases is not None:
        reach = biases.shape[1] // 2
        scores = scores + biases.double()[:, (torch.arange(len(keys)) - now).clamp(-reach, reach) + reach]
    shares = (scores * scale).softmax(-1)
    return torch.einsum("ht,thd->hd", shares, v).flatten(), shares.mean(0)


def numbers(*shape: int) -> Tensor:
    """Random numbers. The memory behind them is NaN, so that reading beyond them spoils a result."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return before_nan(drawn.numel()).copy_(drawn.flatten()).view(shape)


def biases_of(heads: int, reach: int | None) -> tuple[Tensor | None, Biases | None]:
    """Random biases, and the structure of C that points to them; without a reach None."""
    if reach is None:
        return None, None
    table = numbers(heads, 2 * reach + 1)
    return table, Biases(table.data_ptr(), reach)


def before_nan(size: int) -> Tensor:
    return torch.full((size + 64,), float("nan"))[:size]


@heads
@with_biases
@pytest.mark.parametrize("seen", [1, 16, 17, 50])
def test_queries_that_share_their_keys(level: str, heads: int, head: int, reach: int | None, seen: int) -> None:
    """Keys, values and queries stand in rows that are wider than they are."""
    c, width, scale = built(), heads * head, head**-0.5
    c.laid_out.restype, c.laid_out.argtypes = count, [count, count]
    c.lay_out_keys.argtypes, c.lay_out_keys.restype = [pointer, *[count] * 4, pointer], None
    c.attend_shared.argtypes = [pointer, count, count, pointer, pointer, pointer, count]
    both = numbers(seen, 2 * width + 3)
    keys, values = both[:, :width], both[:, width : 2 * width]
    laid = before_nan(c.laid_out(seen, width))
    c.lay_out_keys(keys.data_ptr(), both.stride(0), seen, heads, head, laid.data_ptr())
    table, of_distances = biases_of(heads, reach)
    added = None if of_distances is None else ctypes.addressof(of_distances)
    shared = SharedKeys(laid.data_ptr(), values.data_ptr(), both.stride(0), seen, heads, head, scale, added)
    for rows in (1, 2, 4, 7):
        queries = numbers(rows, width + 1)
        result, weights = torch.full((rows, width), float("nan")), torch.full((rows, seen + 2), 7.0)
        given = queries.data_ptr(), queries.stride(0), rows, ctypes.addressof(shared), result.data_ptr()
        c.attend_shared(*given, weights.data_ptr(), weights.stride(0))
        for n, query in enumerate(queries[:, :width]):
            expected, shares = attended(query, keys, values, heads, scale, table, n)
            torch.testing.assert_close(result[n].double(), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(weights[n, :seen].double(), shares, rtol=1e-5, atol=1e-6)
        assert (weights[:, seen:] == 7).all()  # not its own
        alone = torch.empty_like(result)
        if reach is not None:  # a row by itself would be at another position
            continue
        for n in range(rows):  # a row by itself, and unasked for its weights, is the same to the last bit
            c.attend_shared(
                queries[n].data_ptr(), queries.stride(0), 1, ctypes.addressof(shared), alone[n].data_ptr(), None, 0
            )
        assert torch.equal(alone, result)


@heads
@with_biases
@pytest.mark.parametrize("steps", [1, 16, 17, 40])
def test_each_hypothesis_over_what_it_wrote(level: str, heads: int, head: int, reach: int | None, steps: int) -> None:
    """Two sentences that stand at other places than they come in, with fewer hypotheses than slots."""
    c, width, scale = built(), heads * head, head**-0.5
    c.attend_past.argtypes = [pointer, count, count, count, pointer, count, count, number, pointer, pointer]
    table, of_distances = biases_of(heads, reach)
    added = None if of_distances is None else ctypes.addressof(of_distances)
    sentences, slots, hypotheses, room = 2, 4, 3, steps + 2
    keys, values = numbers(3, room, slots, width), numbers(3, room, slots, width) + 1
    places = torch.tensor([2, 0])
    draw = torch.Generator().manual_seed(steps)
    went = torch.randint(slots, (sentences, slots, room), generator=draw, dtype=torch.int32)
    went[:, :, steps - 1] = torch.arange(slots, dtype=torch.int32)  # of now each has its own slot
    rows = numbers(sentences * hypotheses, 3 * width + 2)
    past = Past(*(tensor.data_ptr() for tensor in (keys, values, places, went)), room, room, steps, slots)
    before, result = (keys.clone(), values.clone()), torch.full((len(rows), width), float("nan"))
    given = rows.data_ptr(), rows.stride(0), sentences, hypotheses, ctypes.addressof(past), heads, head, scale
    c.attend_past(*given, added, result.data_ptr())
    for cache, old, start in zip((keys, values), before, (width, 2 * width)):
        for b, place in enumerate(places):  # what is written now is stored, and nothing else is touched
            own = rows[b * hypotheses : (b + 1) * hypotheses, start : start + width]
            assert torch.equal(cache[place, steps - 1, :hypotheses], own)
            old[place, steps - 1, :hypotheses] = own
        assert torch.equal(cache, old)
    for n in range(len(rows)):
        b, k = divmod(n, hypotheses)
        own = [cache[places[b], range(steps), went[b, k, :steps].long()] for cache in (keys, values)]
        expected, _ = attended(rows[n, :width], *own, heads, scale, table, steps - 1)
        torch.testing.assert_close(result[n].double(), expected, rtol=1e-5, atol=1e-5)
