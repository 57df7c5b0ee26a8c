"""Slots and hops against the paper's sums, written as loops."""

from __future__ import annotations

import numpy as np
import torch

from nmt.layers.padding import padding_bias
from nmt.models.memory.memory_network import Slots, from_end, from_start, hops

LENGTHS = torch.tensor([4, 2])


def test_distances_count_from_each_sentences_own_end() -> None:
    distances = from_end(LENGTHS, 4)
    assert distances[0].tolist() == [3, 2, 1, 0]
    assert distances[1, :2].tolist() == [1, 0]


def test_distances_from_the_start_are_positions() -> None:
    assert from_start(LENGTHS, 4).tolist() == [[0, 1, 2, 3]] * 2


def test_a_slot_is_the_sum_of_a_piece_and_its_places() -> None:
    slots = Slots(10, 6, (from_start, from_end), max_positions=5, std=0.1)
    start, end = slots.places
    found = slots(torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]]), LENGTHS)
    torch.testing.assert_close(found[0, 1], slots.content.weight[5] + start.weight[1] + end.weight[2])
    torch.testing.assert_close(found[1, 0], slots.content.weight[7] + start.weight[0] + end.weight[1])


def test_hops_equal_the_papers_sums() -> None:
    """Equations 1, 2 and 4 for each query by itself; the slots that one hop returns are compared by the next."""
    torch.manual_seed(1)
    slots = [torch.randn(2, 4, 6, dtype=torch.float64) for _ in range(4)]
    queries = torch.randn(2, 3, 6, dtype=torch.float64)
    found, weights = hops(queries, slots, padding_bias(LENGTHS, 4, torch.float64)[:, None])
    for row, length in enumerate(LENGTHS.tolist()):
        for place in range(3):
            u = queries[row, place].numpy()
            for hop in range(3):
                m, c = (slots[hop + after][row, :length].numpy() for after in (0, 1))
                exponentials = [np.exp(u @ m[i]) for i in range(length)]
                p = [value / sum(exponentials) for value in exponentials]
                np.testing.assert_allclose(weights[hop][row, place, :length], p, rtol=1e-9)
                u = u + sum(p[i] * c[i] for i in range(length))
            np.testing.assert_allclose(found[row, place], u, rtol=1e-9)


def test_padding_is_never_read() -> None:
    _, weights = hops(
        torch.randn(2, 3, 6), [torch.randn(2, 4, 6)] * 3, padding_bias(LENGTHS, 4, torch.float32)[:, None]
    )
    assert len(weights) == 2
    assert not any(weight[1, :, 2:].any() for weight in weights)
