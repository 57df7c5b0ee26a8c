"""Packed matrices multiply as torch does, row by row."""

from __future__ import annotations

import ctypes
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.choices import NumberFormat
from nmt.engines.native import ShortlistMatrices
from nmt.engines.packing import Matrix, Packing
from nmt.errors import DataError
from nmt.models.transformer.weights import LinearWeights
from nmt.native.library import built
from nmt.reporting.resources import resident_memory
from tests.unit.native.levels import level, needs_library

__all__ = ["level"]  # a fixture

SHAPES = [(1, 1), (5, 3), (16, 64), (33, 65), (37, 130), (272, 31), (530, 70), (1100, 70)]  # outputs, inputs
ERRORS = {"float32": 1e-6, "bfloat16": 8e-3, "float16": 1e-3, "int8": 2e-2}  # of a product, as a share of its size

pytestmark = needs_library
formats = pytest.mark.parametrize("number_format", NumberFormat)


class Packed:
    """A packed matrix as a function [n, K] -> [n, N]."""

    def __init__(self, weight: Tensor, bias: Tensor | None, number_format: NumberFormat) -> None:
        self.inputs = weight.size(1)
        self.packing = Packing(number_format)
        linear = LinearWeights(weight.numpy(), None if bias is None else bias.numpy())
        self.matrix = self.packing.matrix("", linear)

    def __call__(self, x: Tensor, relu: bool = False) -> Tensor:
        return product(self.matrix, x, relu)


def product(matrix: Matrix, x: Tensor, relu: bool = False) -> Tensor:
    y = torch.empty(len(x), matrix.outputs)
    built().multiply(ctypes.addressof(matrix), x.data_ptr(), x.stride(0), len(x), y.data_ptr(), matrix.outputs, relu)
    return y


def random_matrix(outputs: int, inputs: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(outputs, inputs, generator=numbers), torch.randn(outputs, generator=numbers)


@formats
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_products_are_those_of_torch_and_of_each_row_alone(
    level: str, number_format: NumberFormat, outputs: int, inputs: int
) -> None:
    weight, bias = random_matrix(outputs, inputs)
    packed, without = Packed(weight, bias, number_format), Packed(weight, None, number_format)
    for rows in (1, 4, 7, 16, 33, 77):
        x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows))
        exact = F.linear(x.double(), weight.double(), bias.double())
        found = packed(x)
        assert (found - exact).norm() <= ERRORS[number_format.value] * exact.norm()
        assert torch.equal(packed(x, relu=True), found.clamp(min=0))
        torch.testing.assert_close(without(x), found - bias, atol=2e-5, rtol=1e-4)
        assert torch.equal(found, torch.cat([packed(row[None]) for row in x]))  # to the last bit
        assert torch.equal(found.flip(0), packed(x.flip(0)))


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_integers_are_what_the_scales_of_outputs_and_rows_make_of_numbers(
    level: str, outputs: int, inputs: int
) -> None:
    weight, bias = random_matrix(outputs, inputs)
    x = torch.randn(9, inputs, generator=torch.Generator().manual_seed(2))

    def whole(numbers: Tensor, most: int) -> tuple[Tensor, Tensor]:
        highest = numbers.abs().amax(1, keepdim=True)
        return (numbers * (most / highest)).round().double(), highest / most

    (integers, scales), (rows, sizes) = whole(weight, 127), whole(x, 63 if level == "avx2" else 127)
    expected = rows @ integers.T * (scales.T.double() * sizes.double()) + bias.double()
    torch.testing.assert_close(Packed(weight, bias, NumberFormat.int8)(x).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_of_the_largest_integers_have_room(level: str, sign: float) -> None:
    """Also where two products are added in two bytes."""
    packed = Packed(torch.full((20, 512), sign), None, NumberFormat.int8)
    torch.testing.assert_close(packed(torch.ones(5, 512)), torch.full((5, 20), 512.0 * sign))
    torch.testing.assert_close(packed(-torch.ones(5, 512)), torch.full((5, 20), -512.0 * sign))


def test_nothing_is_multiplied_by_nothing(level: str) -> None:
    for number_format in NumberFormat:
        packed = Packed(torch.zeros(20, 10), torch.ones(20), number_format)
        assert torch.equal(packed(torch.zeros(3, 10)), torch.ones(3, 20))
        assert packed(torch.zeros(0, 10)).shape == (0, 20)


def kept(packed: Packed) -> Tensor:
    """The weights, from products with single ones."""
    return packed(torch.eye(packed.inputs)).T


@formats
def test_weights_are_rounded_as_their_format_says(level: str, number_format: NumberFormat) -> None:
    weight, _ = random_matrix(21, 13)
    weight[0, :4] = torch.tensor([1e-7, -3e-6, 6.1e-5, 0.0])  # float16 has few digits for these
    weight[1] *= 1e4
    found = kept(Packed(weight, None, number_format))
    if number_format is NumberFormat.int8:
        scales = weight.abs().amax(1, keepdim=True) / 127
        assert ((found - weight).abs() <= scales * 0.5001).all()
    else:
        assert torch.equal(found, weight.to(getattr(torch, number_format.value)).float())


@formats
def test_a_row_of_an_embedding_is_that_of_the_matrix(number_format: NumberFormat) -> None:
    weight, _ = random_matrix(37, 45)
    weight[0, :4] = torch.tensor([1e-7, -3e-6, 6.1e-5, 0.0])
    packed, found = Packed(weight, None, number_format), torch.empty(37, 45)
    for number, row in enumerate(found):
        built().unpack_row(ctypes.addressof(packed.matrix), number, row.data_ptr())
    torch.testing.assert_close(found, kept(packed), rtol=1e-6 if number_format is NumberFormat.int8 else 0, atol=0)


def test_what_is_too_large_for_float16_becomes_its_largest_number() -> None:
    found = kept(Packed(torch.tensor([[1e6, -1e6, 65504.0, 65519.0]]), None, NumberFormat.float16))
    assert found.tolist() == [[65504.0, -65504.0, 65504.0, 65504.0]]


@formats
@pytest.mark.parametrize("biased", [True, False])
def test_a_matrix_for_each_sentence_has_some_of_the_outputs(
    level: str, number_format: NumberFormat, biased: bool
) -> None:
    weight, bias = random_matrix(100, 33)
    packed = Packed(weight, bias if biased else None, number_format)
    outputs = torch.randint(100, (3, 21), generator=torch.Generator().manual_seed(1))
    lists = [row[:length].numpy() for row, length in zip(outputs, (21, 18, 21))]
    own, x = ShortlistMatrices(packed.matrix, lists), torch.randn(3, 2, 33)
    for matrix, row, some in zip(own.matrices, x, lists):
        found = product(matrix, row)
        assert torch.equal(found[:, : len(some)], packed(row)[:, torch.from_numpy(some)])
        assert (found[:, len(some) :] == -torch.inf).all()


@formats
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(number_format: NumberFormat, wrong: float) -> None:
    weight, _ = random_matrix(4, 3)
    weight[2, 1] = wrong
    with pytest.raises(
        DataError, match="the model has NaN or infinite weights: its checkpoint is damaged or its training diverged"
    ):
        Packed(weight, None, number_format)


@formats
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_no_number_stays_none_and_is_alone_in_that(
    level: str, number_format: NumberFormat, wrong: float
) -> None:
    weight, bias = random_matrix(20, 10)
    packed, x = Packed(weight, bias, number_format), torch.randn(3, 10)
    expected = packed(x)
    x[1, 4] = wrong
    found = packed(x)
    assert not found[1].isfinite().any()
    assert torch.equal(found[[0, 2]], expected[[0, 2]])


def test_rows_next_to_nothing_are_nothing_in_int8(level: str) -> None:
    weight, bias = random_matrix(20, 10)
    assert torch.equal(Packed(weight, bias, NumberFormat.int8)(torch.full((2, 10), 1e-38)), bias.expand(2, 20))


def test_threads_that_end_give_their_memory_back() -> None:
    packed, x = Packed(*random_matrix(16, 512), NumberFormat.int8), torch.randn(8192, 512)
    held = []
    for _ in range(3):
        for _ in range(20):
            thread = threading.Thread(target=packed, args=(x,))
            thread.start()
            thread.join()
        held.append(resident_memory())
    assert held[2] - held[0] < 40 * 2**20  # forty threads of four megabytes


def test_many_threads_may_load_and_multiply() -> None:
    packed, x = Packed(*random_matrix(64, 64), NumberFormat.int8), torch.randn(16, 64)
    expected, wrong = packed(x), []

    def work() -> None:
        for _ in range(300):
            if not torch.equal(packed(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
