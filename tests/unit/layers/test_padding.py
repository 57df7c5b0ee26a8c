"""Masks, and leaving padding behind."""

from __future__ import annotations

import math

import torch

from nmt.layers.padding import causal_bias, padding_bias, real_rows

INF = math.inf


def test_padding_bias_forbids_what_lies_beyond_a_length() -> None:
    assert padding_bias(torch.tensor([1, 3]), 3, torch.float32).tolist() == [[0, -INF, -INF], [0, 0, 0]]


def test_causal_bias_forbids_later_keys() -> None:
    bias = causal_bias(3, torch.float32, torch.device("cpu"))
    assert bias.tolist() == [[0, -INF, -INF], [0, 0, -INF], [0, 0, 0]]


def test_real_rows_are_the_real_positions_in_batch_order() -> None:
    padded = torch.arange(12.0).view(3, 4, 1)
    lengths = torch.tensor([2, 4, 1])
    rows = real_rows(padded, lengths, torch.tensor([0, 2, 6, 7]), 7)
    assert rows.squeeze(1).tolist() == [0, 1, 4, 5, 6, 7, 8]


def test_gradients_reach_the_real_positions_only() -> None:
    padded = torch.zeros(2, 3, 2, requires_grad=True)
    real_rows(padded, torch.tensor([1, 3]), torch.tensor([0, 1, 4]), 4).sum().backward()
    assert padded.grad is not None
    assert padded.grad[..., 0].tolist() == [[1, 0, 0], [1, 1, 1]]
