"""Addressing, reading and writing, against the paper's formulas in NumPy loops: one row, one head, one slot at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.models.memory.neural_turing_machine import (
    content_weights,
    read,
    sharpen,
    shift_around,
    write,
)

B, H, L, W = 3, 2, 6, 4


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def weights(*shape: int, seed: int = 2) -> Tensor:
    return draw(*shape, seed=seed).softmax(-1)


def by_head(function: object, *arguments: Tensor) -> Tensor:
    """The oracle applied to row b and head h of every argument."""
    results = [
        [function(*(part[b, h].numpy() for part in arguments)) for h in range(arguments[0].size(1))]  # type: ignore[operator]
        for b in range(arguments[0].size(0))
    ]
    return torch.from_numpy(np.array(results))


@pytest.mark.parametrize("strength", [0.5, 3.0])
def test_content_weights_are_a_softmax_of_cosines(strength: float) -> None:
    keys, memory, beta = draw(B, H, W), draw(B, L, W, seed=3), torch.full((B, H, 1), strength, dtype=torch.float64)
    expected = np.zeros((B, H, L))
    for b in range(B):
        for h in range(H):
            k = keys[b, h].numpy()
            cosines = [k @ m / (np.linalg.norm(k) * np.linalg.norm(m)) for m in memory[b].numpy()]
            expected[b, h] = np.exp(strength * np.array(cosines)) / np.exp(strength * np.array(cosines)).sum()
    torch.testing.assert_close(content_weights(keys, beta, memory), torch.from_numpy(expected))


def test_an_empty_memory_is_looked_at_evenly_and_has_finite_gradients() -> None:
    keys, memory = draw(B, H, W).requires_grad_(), torch.zeros(B, L, W, dtype=torch.float64, requires_grad=True)
    content = content_weights(keys, torch.ones(B, H, 1, dtype=torch.float64), memory)
    torch.testing.assert_close(content, torch.full((B, H, L), 1 / L, dtype=torch.float64))
    (content * draw(B, H, L, seed=9)).sum().backward()
    assert keys.grad is not None and memory.grad is not None
    assert torch.isfinite(keys.grad).all() and torch.isfinite(memory.grad).all()


@pytest.mark.parametrize("farthest", [1, 2])
def test_shifting_is_circular_convolution(farthest: int) -> None:
    """Equation 8, with s(j) at j modulo the number of slots."""
    looked, shift = weights(B, H, L), weights(B, H, 2 * farthest + 1, seed=4)

    def convolve(w: np.ndarray, s: np.ndarray) -> list[float]:
        around = {d % L: s[d + farthest] for d in range(-farthest, farthest + 1)}
        return [sum(w[j] * around.get((i - j) % L, 0.0) for j in range(L)) for i in range(L)]

    torch.testing.assert_close(shift_around(looked, shift), by_head(convolve, looked, shift))


def test_the_last_shift_moves_forward_and_around() -> None:
    at_the_end = torch.tensor([[[0.0, 0.0, 0.0, 1.0]]])
    forward = torch.tensor([[[0.0, 0.0, 1.0]]])
    assert shift_around(at_the_end, forward).tolist() == [[[1.0, 0.0, 0.0, 0.0]]]


def test_sharpening_is_a_normalized_power() -> None:
    looked, gamma = weights(B, H, L), 1 + draw(B, H, 1, seed=5).abs()
    expected = by_head(lambda w, g: w**g / (w**g).sum(), looked, gamma)
    torch.testing.assert_close(sharpen(looked, gamma), expected, rtol=1e-5, atol=1e-6)


def test_extreme_sharpening_stays_a_distribution() -> None:
    """A plain power of weights this even would underflow to zero everywhere."""
    looked = torch.full((1, 1, 128), 1 / 128)
    assert sharpen(looked, torch.full((1, 1, 1), 100.0)).sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_writing_erases_with_every_head_and_then_adds(num_heads: int) -> None:
    memory, looked = draw(B, L, W), weights(B, num_heads, L)
    erase, add = draw(B, num_heads, W, seed=8).sigmoid(), draw(B, num_heads, W, seed=9)
    expected = memory.numpy().copy()
    for b in range(B):
        for i in range(L):
            for h in range(num_heads):
                expected[b, i] *= 1 - looked[b, h, i].item() * erase[b, h].numpy()
            for h in range(num_heads):
                expected[b, i] += looked[b, h, i].item() * add[b, h].numpy()
    torch.testing.assert_close(write(memory, looked, erase, add), torch.from_numpy(expected))


def test_reading_is_the_weighted_sum_of_slots() -> None:
    memory, looked = draw(B, L, W), weights(B, H, L)
    expected = [[sum(looked[b, h, i] * memory[b, i] for i in range(L)) for h in range(H)] for b in range(B)]
    torch.testing.assert_close(read(memory, looked), torch.stack([torch.stack(row) for row in expected]))  # type: ignore[arg-type]
