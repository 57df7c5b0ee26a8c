"""Convolutions against torch's own and against loops over positions; weight normalisation against its formula."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.layers.linear import FixedLinear, NormalizedLinear, with_fixed_weights
from nmt.models.convolutional.convolution import CausalConvolution, SameConvolution, windows

SHAPES = [(1, 1), (3, 1), (3, 4), (5, 2)]  # kernel width and dilation


def same(kernel: int, dilation: int) -> SameConvolution:
    return SameConvolution(nn.Linear(kernel * 3, 4), kernel, dilation)


def causal(kernel: int, dilation: int) -> CausalConvolution:
    return CausalConvolution(nn.Linear(kernel * 3, 4), kernel, dilation)


def by_hand(linear: nn.Linear, sentence: Tensor, offsets: list[int]) -> Tensor:
    """[T, C] -> [T, O], position by position: the matrix times what stands at these offsets, zeros outside."""
    outputs = []
    for position in range(len(sentence)):
        seen = [position + offset for offset in offsets]
        inputs = [sentence[i] if 0 <= i < len(sentence) else torch.zeros(sentence.size(1)) for i in seen]
        outputs.append(linear.weight @ torch.cat(inputs) + linear.bias)
    return torch.stack(outputs)


def test_windows_hold_the_earliest_input_first() -> None:
    x = torch.arange(7.0).view(1, 7, 1)
    assert windows(x, kernel=3, dilation=2)[0].tolist() == [[0, 2, 4], [1, 3, 5], [2, 4, 6]]


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_a_convolution_reads_as_far_back_as_ahead(kernel: int, dilation: int) -> None:
    convolution, x = same(kernel, dilation), torch.randn(2, 9, 3)
    found = convolution(x, torch.zeros(2, 9, 1, dtype=torch.bool))
    half = kernel // 2
    for sentence in range(2):
        expected = by_hand(convolution.linear, x[sentence], [dilation * i for i in range(-half, half + 1)])  # type: ignore[arg-type]
        torch.testing.assert_close(found[sentence], expected)


@pytest.mark.parametrize(("kernel", "dilation"), [*SHAPES, (2, 3), (4, 1)])
def test_a_causal_convolution_reads_back_only(kernel: int, dilation: int) -> None:
    convolution, x = causal(kernel, dilation), torch.randn(2, 9, 3)
    found, _ = convolution(x)
    for sentence in range(2):
        expected = by_hand(convolution.linear, x[sentence], [-dilation * i for i in range(kernel)][::-1])  # type: ignore[arg-type]
        torch.testing.assert_close(found[sentence], expected)


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_a_convolution_and_its_gradients_are_torchs(kernel: int, dilation: int) -> None:
    convolution, x = same(kernel, dilation).double(), torch.randn(2, 9, 3, dtype=torch.float64, requires_grad=True)
    linear = convolution.linear
    assert isinstance(linear, nn.Linear)
    found = convolution(x, torch.zeros(2, 9, 1, dtype=torch.bool))
    taps = linear.weight.view(4, kernel, 3).transpose(1, 2)  # [O, C, k]
    side = (kernel - 1) * dilation // 2
    wanted = F.conv1d(x.transpose(1, 2), taps, linear.bias, padding=side, dilation=dilation).transpose(1, 2)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(
        torch.autograd.grad(found.sin().sum(), [x, linear.weight]),
        torch.autograd.grad(wanted.sin().sum(), [x, linear.weight]),
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("garbage", [100.0, torch.inf, torch.nan])
def test_what_stands_at_padding_never_matters(garbage: float) -> None:
    convolution, x = same(3, 2), torch.randn(1, 6, 3)
    padding = torch.tensor([[False] * 4 + [True] * 2])[:, :, None]
    alone = convolution(x[:, :4], padding[:, :4])
    x[:, 4:] = garbage
    torch.testing.assert_close(convolution(x, padding)[:, :4], alone)


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_steps_give_what_a_whole_sentence_gives(kernel: int, dilation: int) -> None:
    convolution, x = causal(kernel, dilation), torch.randn(2, 20, 3)
    cache = convolution.empty_cache(2, 3, like=x)
    outputs = []
    for position in range(20):
        output, cache = convolution(x[:, position : position + 1], cache)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), convolution(x)[0])


def test_a_cache_never_grows() -> None:
    convolution = causal(3, 4)
    cache = convolution.empty_cache(2, 3, like=torch.zeros(1))
    for _ in range(20):
        _, after = convolution(torch.randn(2, 1, 3), cache)
        assert after.shape == cache.shape == (2, 8, 3)
        cache = after


def test_an_even_kernel_cannot_be_symmetric() -> None:
    with pytest.raises(AssertionError, match="even kernel"):
        same(4, 1)


def test_normalized_weights_have_the_learned_lengths() -> None:
    layer = NormalizedLinear(5, 3, std=0.1)
    with torch.no_grad():
        layer.length.copy_(torch.tensor([[1.0], [2.0], [0.5]]))
        layer.direction.mul_(torch.tensor([[7.0], [1.0], [3.0]]))
    torch.testing.assert_close(layer.weight.norm(dim=1), torch.tensor([1.0, 2.0, 0.5]))
    torch.testing.assert_close(F.cosine_similarity(layer.weight, layer.direction), torch.ones(3))


def test_normalized_weights_start_as_drawn() -> None:
    layer = NormalizedLinear(400, 300, std=0.07)
    torch.testing.assert_close(layer.weight, layer.direction)
    assert layer.weight.std().item() == pytest.approx(0.07, rel=0.02)
    assert not layer.bias.any()


def test_the_gradient_of_a_direction_is_orthogonal_to_it() -> None:
    """Salimans and Kingma 2016, section 2.1: lengths and directions are learned apart."""
    layer = NormalizedLinear(5, 3, std=0.1)
    layer(torch.randn(4, 5)).sin().sum().backward()
    assert layer.direction.grad is not None and layer.direction.grad.any()
    torch.testing.assert_close((layer.direction.grad * layer.direction).sum(1), torch.zeros(3))


def test_fixed_weights_compute_the_same_and_leave_the_module_as_it_was() -> None:
    stack = nn.Sequential(NormalizedLinear(5, 4, 0.3), nn.Sequential(nn.ReLU(), NormalizedLinear(4, 3, 0.3)))
    fixed, x = with_fixed_weights(stack), torch.randn(2, 5)
    torch.testing.assert_close(fixed(x), stack(x))
    assert isinstance(fixed[0], FixedLinear) and isinstance(stack[0], NormalizedLinear)
    assert isinstance(stack[1][1], NormalizedLinear)  # type: ignore[index]


def test_fixed_weights_do_not_follow_the_module() -> None:
    layer = NormalizedLinear(5, 4, 0.3)
    fixed, x = with_fixed_weights(layer), torch.randn(2, 5)
    before = fixed(x)
    with torch.no_grad():
        layer.length.mul_(2.0)
    assert torch.equal(fixed(x), before)
