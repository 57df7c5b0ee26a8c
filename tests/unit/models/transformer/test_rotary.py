"""Rotary positions against the rotation matrices of Su et al. 2021, equations 14, 15 and 34."""

from __future__ import annotations

import math

import numpy as np
import torch

from nmt.layers.embeddings import TABLE_LENGTH
from nmt.models.transformer.attention import CausalSelfAttention, ScaledDotProduct
from nmt.models.transformer.attention_kinds import Rotary
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.mask import QueryKeyPositions, whole_sequence
from tests.unit.models.transformer.stepping import assert_steps_equal_the_whole


def rotation(position: int, d_k: int) -> np.ndarray:
    """R: one 2 x 2 rotation for each pair, on the diagonal of a matrix."""
    matrix = np.zeros((d_k, d_k))
    for i in range(d_k // 2):
        angle = position * 10000 ** (-2 * i / d_k)
        block = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
    return matrix


def test_each_position_is_multiplied_with_its_rotation() -> None:
    x = torch.randn(2, 3, 7, 6)
    found = Rotary(6)(x, whole_sequence(7, x.device))
    for position in range(7):
        expected = x[:, :, position].numpy() @ rotation(position, 6).T
        np.testing.assert_allclose(found[:, :, position].numpy(), expected, atol=1e-6)


def test_products_depend_on_the_distance_alone() -> None:
    q, k = torch.randn(1, 1, 1, 8).expand(1, 1, 30, 8), torch.randn(1, 1, 1, 8).expand(1, 1, 30, 8)
    positions = whole_sequence(30, q.device)
    products = Rotary(8)(q, positions)[0, 0] @ Rotary(8)(k, positions)[0, 0].T
    for distance in (0, 3, -7):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5, rtol=0)


def test_a_step_turns_each_row_by_its_own_position() -> None:
    x = torch.randn(2, 3, 1, 6)
    for position in (TABLE_LENGTH - 1, TABLE_LENGTH + 5):  # inside the table of angles and beyond
        positions = QueryKeyPositions(torch.tensor([[2], [position]]), torch.tensor([[0]]), position + 1)
        found = Rotary(6)(x, positions)
        for row, where in enumerate((2, position)):
            expected = x[row, :, 0].numpy() @ rotation(where, 6).T
            np.testing.assert_allclose(found[row, :, 0].numpy(), expected, atol=1e-5)


def test_steps_equal_all_positions_at_once() -> None:
    sizes = HeadSizes(d_model=6, num_heads=2, d_k=4, d_v=3)
    assert_steps_equal_the_whole(CausalSelfAttention(sizes, False, ScaledDotProduct(0.0), Rotary(4)), 6)


def test_the_angles_are_no_part_of_a_saved_model() -> None:
    assert not Rotary(8).state_dict()
