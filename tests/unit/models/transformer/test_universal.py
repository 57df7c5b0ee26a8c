"""One layer applied again and again, told where and when it is."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from nmt.layers.embeddings import NoPositions, SinusoidalPositions
from nmt.models.transformer.layers import Coordinates, EncoderLayer, Record, UniversalEncoderLayer
from nmt.models.transformer.mask import Mask, whole_sequence


class Doubling(EncoderLayer):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor, mask: Mask, record: Record) -> torch.Tensor:
        return self.factor * x


def signal(position: int, time: int, dimension: int, width: int) -> float:
    """Equations 6 and 7 of Dehghani et al. 2019, with positions from 0 as everywhere here."""
    rate = 10000 ** ((dimension - dimension % 2) / width)
    wave = math.cos if dimension % 2 else math.sin
    return wave(position / rate) + wave(time / rate)


def test_coordinates_are_the_sum_of_position_and_time() -> None:
    signals = Coordinates(SinusoidalPositions(6), 3, 6)(Mask(None, whole_sequence(5, torch.device("cpu"))))
    for step, found in enumerate(signals):
        for position in range(5):
            expected = [signal(position, step + 1, dimension, 6) for dimension in range(6)]
            assert found[position].tolist() == pytest.approx(expected, abs=1e-6)


def test_without_positions_the_layer_hears_of_time_alone() -> None:
    signals = Coordinates(NoPositions(), 2, 6)(Mask(None, whole_sequence(5, torch.device("cpu"))))
    assert [found.shape for found in signals] == [(6,), (6,)]  # the same for every position
    assert not torch.equal(signals[0], signals[1])


def test_the_layer_is_applied_at_each_step_to_state_and_signal() -> None:
    layer, x = UniversalEncoderLayer(Doubling(), Coordinates(SinusoidalPositions(6), 3, 6)), torch.randn(2, 4, 6)
    mask = Mask(None, whole_sequence(4, torch.device("cpu")))
    first, second, third = layer.coordinates(mask)
    torch.testing.assert_close(layer(x, mask, Record()), 2 * (2 * (2 * (x + first) + second) + third))


def test_all_steps_have_one_set_of_parameters() -> None:
    layer = UniversalEncoderLayer(Doubling(), Coordinates(SinusoidalPositions(6), 3, 6))
    assert list(layer.state_dict()) == ["layer.factor"]
