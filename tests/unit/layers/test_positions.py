"""Positions against the paper's formula."""

from __future__ import annotations

import math

import pytest
import torch

from nmt.layers.embeddings import TABLE_LENGTH, LearnedPositions, NoPositions, SinusoidalPositions


def formula(position: int, dimension: int, d_model: int) -> float:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))"""
    angle = position / 10000 ** ((dimension - dimension % 2) / d_model)
    return math.cos(angle) if dimension % 2 else math.sin(angle)


@pytest.mark.parametrize("position", [0, 1, 2, 10, 100, 1023])
def test_sinusoids_follow_the_formula(position: int) -> None:
    expected = [formula(position, dimension, 8) for dimension in range(8)]
    torch.testing.assert_close(SinusoidalPositions(8).at(torch.tensor(position), TABLE_LENGTH), torch.tensor(expected))


def test_sinusoids_extend_beyond_their_table() -> None:
    positions = SinusoidalPositions(8)
    longer = positions.at(torch.arange(TABLE_LENGTH + 5), TABLE_LENGTH + 5)
    expected = [formula(TABLE_LENGTH + 4, dimension, 8) for dimension in range(8)]
    torch.testing.assert_close(longer[-1], torch.tensor(expected))
    torch.testing.assert_close(longer[:TABLE_LENGTH], positions.at(torch.arange(TABLE_LENGTH), TABLE_LENGTH))


@pytest.mark.parametrize("bound", [20, TABLE_LENGTH + 20])
def test_single_positions_equal_those_of_a_sequence(bound: int) -> None:
    for positions in (SinusoidalPositions(8), LearnedPositions(8, TABLE_LENGTH + 20)):
        chosen = torch.tensor([0, 3, bound - 1])
        torch.testing.assert_close(positions.at(chosen, bound), positions.at(torch.arange(bound), bound)[chosen])


def test_sinusoids_are_no_part_of_a_saved_model() -> None:
    assert not SinusoidalPositions(8).state_dict()


def test_a_relative_shift_is_a_rotation() -> None:
    table = SinusoidalPositions(8).at(torch.arange(50), 50).double()
    pairs = table.view(50, 4, 2)
    products = (pairs[5:] * pairs[:-5]).sum(-1)  # the cosine of the angle of each pair between positions 5 apart
    torch.testing.assert_close(products, products[:1].expand_as(products), atol=1e-6, rtol=0)


def test_learned_positions_have_a_limit_and_sinusoids_none() -> None:
    assert LearnedPositions(8, 12).limit == 12
    assert SinusoidalPositions(8).limit is None


def test_no_positions_change_nothing() -> None:
    x = torch.randn(2, 3, 8)
    assert torch.equal(x + NoPositions().at(torch.arange(3), 3), x)
    assert torch.equal(x[:, 0] + NoPositions().at(torch.tensor([1, 2]), 3), x[:, 0])
    assert NoPositions().limit is None and not NoPositions().state_dict()
