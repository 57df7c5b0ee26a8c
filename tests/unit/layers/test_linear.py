"""A linear layer that meets few shapes: torch's own in everything but the number of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.criterions import criterions
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.data.batching.batch import collate
from nmt.interface import VocabularySizes
from nmt.layers import linear
from nmt.layers.linear import Linear, eighths, with_zero_rows
from nmt.models.transformer.config import PositionKind
from nmt.models.transformer.transformer import Transformer, TransformerConfig


def let_kernels_be(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For products in bf16."""
    monkeypatch.setattr(linear, "has_bf16_kernels", lambda: there)


def pair(bias: bool = True) -> tuple[Linear, nn.Linear]:
    torch.manual_seed(1)
    ours, torchs = Linear(6, 5, bias=bias), nn.Linear(6, 5, bias=bias)
    torchs.load_state_dict(ours.state_dict())
    return ours, torchs


def results(layer: nn.Linear, x: Tensor, dtype: torch.dtype | None) -> list[Tensor]:
    """Output and the gradients of input and parameters."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        output = layer(x)
    upstream = torch.linspace(-1, 1, output.numel()).view_as(output).to(output.dtype)
    return [output, *torch.autograd.grad(output, [x, *layer.parameters()], upstream)]


@pytest.mark.parametrize("shape", [(6,), (1, 6), (7, 6), (8, 6), (3, 11, 6), (70, 6), (0, 4, 6)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("kernels", [False, True])
def test_it_computes_what_torchs_does(
    shape: tuple[int, ...], bias: bool, dtype: torch.dtype | None, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_kernels_be(kernels, monkeypatch)
    torch.manual_seed(2)
    x = torch.randn(shape)
    ours, torchs = pair(bias)
    for found, expected in zip(results(ours, x, dtype), results(torchs, x, dtype), strict=True):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        tolerance = {} if dtype is None else {"rtol": 0.02, "atol": 0.02}
        torch.testing.assert_close(found, expected, **tolerance)


def test_what_needs_no_gradient_gets_none() -> None:
    ours, _ = pair()
    ours.weight.requires_grad_(False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours(torch.randn(3, 6)).sum().backward()
    assert ours.weight.grad is None and ours.bias.grad is not None
    assert ours.bias.grad.dtype == torch.float32


@pytest.mark.parametrize("number", [1, 7, 8, 9, 100, 2600, 4095, 4096, 4097])
def test_there_are_eight_numbers_between_powers_of_two(number: int) -> None:
    assert number <= eighths(number) < max(number + 8, number * 9 / 8 + 1)
    assert eighths(eighths(number)) == eighths(number)


def test_at_most_eight_numbers_follow_a_power_of_two() -> None:
    assert len({eighths(number) for number in range(2049, 4097)}) == 8
    assert eighths(2600) == 2816


def test_rows_that_are_added_are_zero() -> None:
    roomy = with_zero_rows(torch.ones(2600, 3), torch.bfloat16)
    assert roomy.shape == (2816, 3) and roomy.dtype == torch.bfloat16
    assert bool((roomy[:2600] == 1).all()) and bool((roomy[2600:] == 0).all())


class Products(TorchDispatchMode):
    """Notes the shapes of products in bf16."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__.split(".")[0]
        tensors = [one for one in args if isinstance(one, Tensor)]
        if name in ("mm", "addmm", "bmm", "baddbmm", "linear") and tensors[-1].dtype == torch.bfloat16:
            self.shapes.add((name, *(tuple(one.shape) for one in tensors)))
        return function(*args, **(kwargs or {}))


def transformer(positions: PositionKind = PositionKind.sinusoidal) -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig(1, 1, d_model=16, d_ff=24, num_heads=2, positions=positions)
    return Transformer(config, VocabularySizes(50, 50, shared=True))


def test_training_in_bf16_meets_no_new_shapes_where_batches_are_about_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of these have between 241 and 256 positions on either side, and real ones."""
    let_kernels_be(True, monkeypatch)
    model, criterion = transformer(), criterions.build(LabelSmoothedCrossEntropyConfig())
    draw = torch.Generator().manual_seed(3)

    def train(sentences: int, length: int) -> set[tuple[Any, ...]]:
        ids = [torch.randint(4, 50, (length - index % 2,), generator=draw).numpy() for index in range(sentences)]
        with Products() as products:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                report = criterion(model, collate(ids, ids))
            report.loss_sum.backward()
        return products.shapes

    first = train(16, 16)
    assert first
    for sentences, length in ((17, 15), (15, 17), (18, 14), (14, 18), (13, 19)):
        assert train(sentences, length) == first
    assert train(30, 16) != first


@pytest.mark.parametrize("length", [16, 300])
@pytest.mark.parametrize("positions", PositionKind)
def test_attention_multiplies_in_float32_whatever_the_length(
    length: int, positions: PositionKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shapes are those of a batch's sentences: a kernel for each would be kept for nothing."""
    let_kernels_be(True, monkeypatch)
    ids = [torch.randint(4, 50, (length,)).numpy() for _ in range(2)]
    with Products() as products:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            report = criterions.build(LabelSmoothedCrossEntropyConfig())(transformer(positions), collate(ids, ids))
        report.loss_sum.backward()
    assert {name for name, *_ in products.shapes} <= {"mm", "addmm"} and products.shapes


@pytest.mark.parametrize("length", [9, 70])
@pytest.mark.parametrize("output_alone", [False, True])
def test_without_kernels_nothing_is_multiplied_in_bf16_and_the_gradients_are_the_same(
    length: int, output_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, criterion = transformer().eval(), criterions.build(LabelSmoothedCrossEntropyConfig())
    model.output.product_type = torch.bfloat16 if output_alone else None
    ids = [torch.randint(4, 50, (length - lacking,)).numpy() for lacking in range(3)]
    gradients = []
    for kernels in (True, False):
        let_kernels_be(kernels, monkeypatch)
        model.zero_grad()
        with Products() as products:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not output_alone):
                report = criterion(model, collate(ids, ids))
            report.loss_sum.backward()
        assert bool(products.shapes) == kernels
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    distance = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
    assert distance < (1e-3 if output_alone else 0.02)
