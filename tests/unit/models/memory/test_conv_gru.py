"""The convolutional gated recurrent unit against loops over cells."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from nmt.models.memory.neural_gpu import GAIN, ConvGRU, ImageDropout, ImageStep, cut_sigmoid

Image = npt.NDArray[np.float64]


def convolved(convolution: nn.Conv2d, image: Image) -> Image:
    """[C, W, H] -> [C', W, H]: a weighted sum over the 3 x 3 cells around each, cells off the image being zero."""
    weight, bias = (parameter.detach().double().numpy() for parameter in convolution.parameters())
    _, width, height = image.shape
    result = np.empty((len(bias), width, height))
    for x in range(width):
        for y in range(height):
            total = bias.copy()
            for dx in (-1, 0, 1):
                for dy in (-1, 0, 1):
                    if 0 <= x + dx < width and 0 <= y + dy < height:
                        total += weight[:, :, dx + 1, dy + 1] @ image[:, x + dx, y + dy]
            result[:, x, y] = total
    return result


def by_hand(unit: ConvGRU, image: Image, read: Image) -> Image:
    """Section 2.1 of the paper, with the hard gate written as cases."""

    def gate(x: Image) -> Image:
        stretched = 1.2 / (1 + np.exp(-x)) - 0.1
        return np.where(stretched < 0, 0.0, np.where(stretched > 1, 1.0, stretched))

    gates = gate(convolved(unit.gates, np.concatenate([read, image])))
    reset, update = gates[: len(image)], gates[len(image) :]
    candidate = np.tanh(convolved(unit.candidate, np.concatenate([read, reset * image])))
    return update * image + (1 - update) * candidate


def some_unit(maps: int = 3, read_maps: int = 2) -> ConvGRU:
    torch.manual_seed(1)
    unit = ConvGRU(maps, read_maps)
    with torch.no_grad():  # biases that differ
        for parameter in unit.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return unit


def everywhere(image: Tensor) -> Tensor:
    return torch.ones(image.size(0), 1, image.size(2), 1)


def test_a_unit_equals_loops_over_cells() -> None:
    unit = some_unit()
    image, read = torch.randn(2, 3, 5, 2), torch.randn(2, 2, 5, 2)
    found = unit(image, everywhere(image), read)
    for row in range(2):
        expected = by_hand(unit, image[row].double().numpy(), read[row].double().numpy())
        torch.testing.assert_close(found[row].double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


def test_a_step_is_its_units_one_after_the_other() -> None:
    units = [some_unit(), some_unit()]
    image, read = torch.randn(2, 3, 5, 2), torch.randn(2, 2, 5, 2)
    inside = everywhere(image)
    torch.testing.assert_close(
        ImageStep(units)(image, inside, read), units[1](units[0](image, inside, read), inside, read)
    )


def test_the_gate_is_stretched_and_cut() -> None:
    x = torch.linspace(-6, 6, 101)
    found = cut_sigmoid(x)
    assert found[0] == 0 and found[-1] == 1  # exactly
    between = (found > 0) & (found < 1)
    torch.testing.assert_close(found[between], 1.2 / (1 + (-x[between]).exp()) - 0.1)
    assert between.sum() == ((x > -np.log(11)) & (x < np.log(11))).sum()  # 1.2 sigma(x) = 0.1 at x = -log 11


def test_what_stands_beside_an_image_never_changes_it() -> None:
    """An image of four columns gives the same in a tensor of four columns and in one of seven."""
    unit = some_unit()
    image, read = torch.randn(1, 3, 4, 2), torch.randn(1, 2, 4, 2)
    alone = unit(image, everywhere(image), read)
    wide_image, wide_read = (nn.functional.pad(part, (0, 0, 0, 3)) for part in (image, read))
    inside = everywhere(wide_image).index_fill(2, torch.arange(4, 7), 0.0)
    beside = unit(wide_image, inside, wide_read)
    torch.testing.assert_close(beside[:, :, :4], alone)
    assert not beside[:, :, 4:].any()


def test_filters_start_orthogonal_and_gates_open() -> None:
    unit = ConvGRU(4, read_maps=3)
    for filters in (*unit.gates.weight.chunk(2), unit.candidate.weight):
        rows = filters.flatten(1)
        torch.testing.assert_close(rows @ rows.T, GAIN**2 * torch.eye(4), rtol=1e-4, atol=1e-4)
    assert unit.gates.bias is not None and unit.candidate.bias is not None
    assert bool((unit.gates.bias == 1).all()) and not unit.candidate.bias.any()


@pytest.mark.parametrize("length", [1, 4, 9])
def test_the_rate_of_dropout_falls_with_the_square_root_of_the_own_length(length: int) -> None:
    torch.manual_seed(1)
    images = torch.ones(2, 50, 20, 20)
    dropped = ImageDropout(0.2)(images, torch.tensor([length, 100]))
    for image, rate in zip(dropped, (0.6 / length**0.5, 0.06)):
        assert (image == 0).float().mean().item() == pytest.approx(rate, abs=0.02)
        assert image.mean().item() == pytest.approx(1.0, abs=0.05)


def test_dropout_acts_in_training_only() -> None:
    images = torch.randn(2, 3, 4, 5)
    assert torch.equal(ImageDropout(0.2).eval()(images, torch.tensor([1, 2])), images)
