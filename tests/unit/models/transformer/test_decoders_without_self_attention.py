"""The average attention network and the SSRU against their equations, one position after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.models.transformer.autoregression import Autoregression, BeamHistory
from nmt.models.transformer.decoders_without_attention import SSRU, AverageAttention, by_doubling, by_position
from nmt.trees import tensors
from tests.unit.models.transformer.stepping import assert_steps_equal_the_whole

WIDTH = 4


def average_attention() -> AverageAttention:
    return AverageAttention(WIDTH, 6, 0.0)


def ssru() -> SSRU:
    return SSRU(WIDTH)


KINDS = {"average_attention": average_attention, "ssru": ssru}


def sigmoid(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-x))
    return result


def array(x: Tensor) -> np.ndarray:
    converted: np.ndarray = x.detach().numpy()
    return converted


def test_average_attention_follows_its_equations() -> None:
    module, y = average_attention().double(), torch.randn(5, WIDTH, dtype=torch.float64)
    found = array(module(y[None], module.causal_mask(y[None]))[0])
    inner, outer = module.feed_forward.inner, module.feed_forward.outer
    for j in range(5):
        mean = array(y[: j + 1]).mean(0)
        g = array(outer.weight) @ np.maximum(0, array(inner.weight) @ mean + array(inner.bias)) + array(outer.bias)
        gates = sigmoid(array(module.gates.weight) @ np.concatenate([array(y[j]), g]))
        np.testing.assert_allclose(found[j], gates[:WIDTH] * array(y[j]) + gates[WIDTH:] * g, rtol=1e-10)


def test_the_ssru_follows_its_equations() -> None:
    module, x = ssru().double(), torch.randn(5, WIDTH, dtype=torch.float64)
    torch.nn.init.normal_(module.forget.bias)
    found = array(module(x[None], module.causal_mask(x[None]))[0])
    cell = np.zeros(WIDTH)
    for t in range(5):
        f = sigmoid(array(module.forget.weight) @ array(x[t]) + array(module.forget.bias))
        cell = f * cell + (1 - f) * (array(module.input.weight) @ array(x[t]))
        np.testing.assert_allclose(found[t], np.maximum(0, cell), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_equal_all_positions_at_once(kind: str) -> None:
    module: Autoregression = KINDS[kind]()
    assert_steps_equal_the_whole(module, WIDTH)


@pytest.mark.parametrize("kind", KINDS)
def test_the_past_is_one_vector_a_row_however_long_the_sentence(kind: str) -> None:
    module, x = KINDS[kind](), torch.randn(3, 2, WIDTH)
    cache, history = module.start(3, 2, x), BeamHistory.start(3, 2, x)
    for _ in range(30):
        history = history.entered()
        _, cache = module.step(x, cache, module.step_mask(cache, history))
        history = history.passed()
    assert [tuple(tensor.shape) for tensor in tensors(cache)] == [(6, WIDTH)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_past_is_kept_in_single_precision(kind: str) -> None:
    cache = KINDS[kind]().start(3, 1, torch.zeros(1, dtype=torch.bfloat16))
    assert [tensor.dtype for tensor in tensors(cache)] == [torch.float32]


@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
def test_both_ways_of_a_recurrence_agree(length: int) -> None:
    factors, inputs = torch.rand(2, length, 3, dtype=torch.float64), torch.randn(2, length, 3, dtype=torch.float64)
    torch.testing.assert_close(by_doubling(factors, inputs), by_position(factors, inputs))


@pytest.mark.parametrize("length", [1, 4])
def test_the_gradient_of_the_recurrence_is_that_of_finite_differences(length: int) -> None:
    module = ssru().double()

    def outputs(x: Tensor) -> Tensor:
        return module(x, module.causal_mask(x))

    assert torch.autograd.gradcheck(outputs, torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True))
