"""Lightweight and dynamic convolutions against the equations of Wu et al. 2019, written as loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.errors import UsageError
from nmt.models.transformer import lightconv
from nmt.models.transformer.config import (
    DecoderKind,
    LayerKind,
    PositionKind,
)
from nmt.models.transformer.lightconv import (
    HeadConvolution,
    LearnedKernels,
    PredictedKernels,
    SourceConvolution,
    TargetConvolution,
    convolve,
)
from nmt.models.transformer.lightconv_config import ConvolutionKind, LightConvConfig
from nmt.trees import tensors
from tests.unit.models.transformer.stepping import assert_steps_equal_the_whole

HEADS, WIDTH = 2, 6
CONFIG = LightConvConfig(d_model=WIDTH, num_heads=HEADS)
BOTH = pytest.mark.parametrize("kind", ConvolutionKind)


def softmax(x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.exp(x) / np.exp(x).sum()
    return result


def array(x: Tensor) -> np.ndarray:
    converted: np.ndarray = x.detach().numpy()
    return converted


def by_loops(module: HeadConvolution, x: np.ndarray, *, first: int) -> np.ndarray:
    """[T, D] -> [T, D], one number after the other; the kernel's ``first`` weight is for so many positions on."""
    both = x @ array(module.input.weight).T + array(module.input.bias)
    entered = both[:, :WIDTH] / (1 + np.exp(-both[:, WIDTH:])) if module.gated else both
    convolved = np.zeros_like(entered)
    for t in range(len(x)):
        for channel in range(WIDTH):
            head = channel * HEADS // WIDTH  # channels of a head stand together
            if isinstance(module.kernels, LearnedKernels):
                kernel = softmax(array(module.kernels.weight)[head])
            else:
                assert isinstance(module.kernels, PredictedKernels)
                rows = array(module.kernels.linear.weight)[head * module.width : (head + 1) * module.width]
                kernel = softmax(rows @ entered[t])
            for j, weight in enumerate(kernel):
                if 0 <= t + first + j < len(x):
                    convolved[t, channel] += weight * entered[t + first + j, channel]
    result: np.ndarray = convolved @ array(module.output.weight).T + array(module.output.bias)
    return result


def source(kind: ConvolutionKind, width: int, *, gated: bool = True) -> SourceConvolution:
    return SourceConvolution(replace(CONFIG, convolution=kind, gated=gated), width).double()


def target(kind: ConvolutionKind, width: int) -> TargetConvolution:
    return TargetConvolution(replace(CONFIG, convolution=kind), width).double()


def no_padding(length: int) -> Tensor:
    return torch.zeros(1, 1, 1, length, dtype=torch.float64)


@BOTH
@pytest.mark.parametrize("width", [1, 3, 7])
@pytest.mark.parametrize("gated", [False, True])
def test_the_encoders_convolution_follows_its_equations(kind: ConvolutionKind, width: int, gated: bool) -> None:
    module, x = source(kind, width, gated=gated), torch.randn(5, WIDTH, dtype=torch.float64)
    found = module(x[None], module.padding_mask(no_padding(5)))
    np.testing.assert_allclose(array(found[0]), by_loops(module, array(x), first=-(width // 2)), rtol=1e-9)


@BOTH
@pytest.mark.parametrize("width", [1, 4, 9])
def test_the_decoders_convolution_follows_its_equations(kind: ConvolutionKind, width: int) -> None:
    module, x = target(kind, width), torch.randn(5, WIDTH, dtype=torch.float64)
    found = module(x[None], module.causal_mask(x[None]))
    np.testing.assert_allclose(array(found[0]), by_loops(module, array(x), first=1 - width), rtol=1e-9)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 11, 12])
def test_long_sentences_are_computed_in_blocks(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, length + 2, WIDTH, dtype=torch.float64)
    kernels = torch.randn(2, HEADS, length, 3, dtype=torch.float64)
    at_once = convolve(x, kernels)
    monkeypatch.setattr(lightconv, "BLOCK", 4)
    torch.testing.assert_close(convolve(x, kernels), at_once)


@BOTH
@pytest.mark.parametrize("width", [1, 2, 5])
def test_steps_equal_all_positions_at_once(kind: ConvolutionKind, width: int) -> None:
    assert_steps_equal_the_whole(target(kind, width), WIDTH)


def test_a_step_keeps_one_input_less_than_the_kernel_is_wide() -> None:
    module, x = target(ConvolutionKind.lightweight, 4), torch.randn(3, 2, WIDTH, dtype=torch.float64)
    cache = module.start(3, 2, x)
    for _ in range(9):
        _, cache = module.step(x, cache, module.causal_mask(x))
    assert [tuple(tensor.shape) for tensor in tensors(cache)] == [(6, 3, WIDTH)]


@BOTH
def test_what_stands_at_padding_does_not_matter(kind: ConvolutionKind) -> None:
    module, x = source(kind, 5), torch.randn(1, 4, WIDTH, dtype=torch.float64)
    alone = module(x, module.padding_mask(no_padding(4)))
    padded = torch.cat([x, torch.randn(1, 3, WIDTH, dtype=torch.float64)], 1)
    bias = no_padding(7).masked_fill(torch.arange(7) >= 4, -torch.inf)
    torch.testing.assert_close(module(padded, module.padding_mask(bias))[:, :4], alone)


def test_dropout_spares_weights_or_drops_them_from_the_normalized_kernel() -> None:
    kernels = LearnedKernels(WIDTH, HEADS, 400, 0.5)
    learned, dropped = torch.softmax(kernels.weight, -1), kernels(torch.empty(0))[0, :, 0]
    kept = dropped != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * learned[kept], rtol=0.05, atol=0)
    torch.testing.assert_close(kernels.eval()(torch.empty(0))[0, :, 0], learned)


def test_the_last_width_repeats() -> None:
    config = LightConvConfig()
    assert config.encoder_widths() == [3, 7, 15, 31, 31, 31, 31]
    assert config.decoder_widths() == [3, 7, 15, 31, 31, 31]


REFUSED = {
    "an even kernel of the encoder": ({"encoder_kernels": [3, 4]}, "encoder_kernels has 4.*use odd widths"),
    "no kernels": ({"decoder_kernels": []}, "decoder_kernels is empty"),
    "a kernel of no width": ({"decoder_kernels": [3, 0]}, "decoder_kernels=0"),
    "heads that do not share the channels": ({"d_model": 10, "num_heads": 4, "d_k": 3, "d_v": 3}, "is not divisible"),
    "positions in self-attention": ({"positions": PositionKind.alibi}, "positions=alibi configures self-attention"),
    "another decoder": ({"decoder": DecoderKind.ssru}, "decoder=ssru configures self-attention"),
    "one layer for all": ({"layers": LayerKind.universal}, "layers=universal configures self-attention"),
    "a neighborhood": ({"encoder_neighborhood": 3}, "encoder_neighborhood=3 configures self-attention"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_convolutions_cannot_do_is_refused(name: str) -> None:
    options, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        LightConvConfig(**options)
