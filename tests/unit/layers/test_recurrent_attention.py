"""Attention of recurrent decoders against its formulas, one query and one state at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.layers.padding import padding_bias
from nmt.layers.recurrent_attention import (
    AdditiveAttention,
    ContentAttention,
    DotAttention,
    GeneralAttention,
    NoAttention,
    PredictedWindow,
    ProductAttention,
)

LENGTHS = (3, 5)


def bias() -> Tensor:
    """[2, 1, 5]: the first sentence has three real positions."""
    added = torch.zeros(2, 1, 5)
    added[0, :, 3:] = -torch.inf
    return added


def dot() -> tuple[ContentAttention, Callable[[Tensor, Tensor], Tensor]]:
    return DotAttention(4), lambda query, state: query @ state


def general() -> tuple[ContentAttention, Callable[[Tensor, Tensor], Tensor]]:
    attention = GeneralAttention(4, 6)
    return attention, lambda query, state: query @ (attention.key.weight @ state)


def additive() -> tuple[ContentAttention, Callable[[Tensor, Tensor], Tensor]]:
    attention = AdditiveAttention(4, 6)

    def score(query: Tensor, state: Tensor) -> Tensor:
        mixed = attention.query.weight @ query + attention.key.weight @ state + attention.key.bias
        return attention.score.weight[0] @ mixed.tanh()

    return attention, score


def product() -> tuple[ContentAttention, Callable[[Tensor, Tensor], Tensor]]:
    attention = ProductAttention(4, 6)
    with torch.no_grad():
        attention.scale.normal_()

    def score(query: Tensor, state: Tensor) -> Tensor:
        return attention.scale @ ((attention.query.weight @ query).tanh() * (attention.key.weight @ state).tanh())

    return attention, score


@pytest.mark.parametrize("make", [dot, general, additive, product])
def test_weights_and_contexts_are_those_of_the_formula(make: Callable[..., tuple[ContentAttention, object]]) -> None:
    attention, score = make()
    queries, states = torch.randn(2, 3, 4), torch.randn(2, 5, attention.context_size)
    contexts, weights = attention(queries, attention.project(states), states, bias())
    assert weights is not None
    for sentence, length in enumerate(LENGTHS):
        for position in range(3):
            scores = [score(queries[sentence, position], states[sentence, s]) for s in range(length)]  # type: ignore[operator]
            expected = torch.stack(scores).softmax(0)
            torch.testing.assert_close(weights[sentence, position, :length], expected)
            torch.testing.assert_close(contexts[sentence, position], expected @ states[sentence, :length])
    assert not weights[0, :, 3:].any()


@pytest.mark.parametrize("window", [1, 2, 10])
def test_a_predicted_window_follows_its_equations(window: int) -> None:
    content = DotAttention(4)
    attention = PredictedWindow(content, 4, window)
    queries, states = 3 * torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    contexts, shown = attention(queries, attention.project(states), states, bias())
    assert shown is not None
    torch.testing.assert_close(shown.sum(-1), torch.ones(2, 3))
    for sentence, length in enumerate(LENGTHS):
        for position in range(3):
            query = queries[sentence, position]
            hidden = torch.tanh(attention.hidden.weight @ query)
            centre = length * torch.sigmoid(attention.centre.weight[0] @ hidden).item()
            near = [s for s in range(length) if abs(s - centre) <= window]
            aligned = torch.stack([query @ states[sentence, s] for s in near]).softmax(0)
            sigma = window / 2
            gauss = torch.tensor([math.exp(-((s - centre) ** 2) / (2 * sigma**2)) for s in near])
            torch.testing.assert_close(contexts[sentence, position], (aligned * gauss) @ states[sentence, near])
            torch.testing.assert_close(shown[sentence, position, near], aligned * gauss / (aligned * gauss).sum())


def test_no_attention_gives_an_empty_context() -> None:
    contexts, weights = NoAttention()(torch.randn(2, 3, 4), torch.zeros(0), torch.randn(2, 5, 4), torch.zeros(0))
    assert contexts.shape == (2, 3, 0)
    assert weights is None


@pytest.mark.parametrize("length", [150, 301, 1000])
def test_a_predicted_centre_far_on_is_as_exact_in_bfloat16(length: int) -> None:
    """Rounded to 16 bits it would lie beyond the last position, where nothing is to be seen, or two beside its place."""
    torch.manual_seed(1)
    attention = PredictedWindow(DotAttention(16), 16, window=1)
    with torch.no_grad():
        attention.centre.weight.mul_(60)
    queries, states = torch.randn(2, 50, 16) * 3, torch.randn(2, length, 16)
    bias = padding_bias(torch.tensor([length, length - 3]), length, torch.float32)[:, None]
    centres: list[Tensor] = []
    attention.centre.register_forward_hook(lambda module, inputs, output: centres.append(output.float()))
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        contexts, weights = attention(queries, attention.project(states), states, bias)
    assert weights is not None and contexts.isfinite().all() and weights.isfinite().all()
    expected = torch.tensor([[[length]], [[length - 3]]]) * torch.sigmoid(centres[0])
    looked_at = torch.arange(length)[None, None]
    assert bool(((looked_at - expected).abs()[weights > 0] <= 1).all())
