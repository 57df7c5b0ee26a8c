"""Criterions: sums, their denominators, both ways of computing them, and auxiliary losses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.criterions import criterions
from nmt.criterions.config import CrossEntropyConfig, LabelSmoothedCrossEntropyConfig
from nmt.data.batching.batch import Batch, collate
from nmt.errors import UsageError
from nmt.interface import DecoderOutput, EncoderDecoder, OutputLayer
from nmt.models.output_layers import LinearOutput

M, D, V = 5, 4, 11


class OpaqueOutput(LinearOutput):
    """An output layer that is not one matrix, as far as anybody knows."""

    def linear(self) -> Any:
        return None


class FixedModel(EncoderDecoder):
    """Hidden states that are parameters; no sentence is read."""

    def __init__(self, output: type[LinearOutput] = LinearOutput, **auxiliary: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.hidden = nn.Parameter(torch.randn(M, D, dtype=torch.float64, generator=generator))
        weight = torch.randn(V, D, dtype=torch.float64, generator=generator)
        self.output: OutputLayer = output(weight, torch.randn(V, dtype=torch.float64, generator=generator))
        self.means = nn.ParameterDict({name: nn.Parameter(torch.tensor(mean)) for name, mean in auxiliary.items()})

    def forward(self, batch: Batch, attention: Any = None) -> DecoderOutput:
        return DecoderOutput(self.hidden, auxiliary=dict(self.means.items()))

    def encode(self, source: Tensor, source_lengths: Tensor) -> Any: ...

    def decode(self, memory: Any, batch: Batch, attention: Any = None) -> Any: ...

    def start(self, memory: Any, beam_size: int, vocabulary: Tensor | None = None) -> Any: ...

    def step(self, tokens: Tensor, memory: Any, state: Any, attention: bool = False) -> Any: ...


def batch() -> Batch:
    return collate([torch.tensor([4, 3]).numpy()] * 2, [torch.tensor(ids).numpy() for ids in ([5, 6, 3], [7, 3])])


CONFIGS = [
    CrossEntropyConfig(),
    LabelSmoothedCrossEntropyConfig(),
    LabelSmoothedCrossEntropyConfig(label_smoothing=0.3),
]


def smoothing(config: Any) -> float:
    value: float = getattr(config, "label_smoothing", 0.0)
    return value


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("output", [LinearOutput, OpaqueOutput])
def test_the_loss_is_the_sum_that_torch_computes(config: Any, output: type[LinearOutput]) -> None:
    model = FixedModel(output)
    report = criterions.build(config)(model, batch())
    logits = model.output.logits(model.hidden)
    expected = F.cross_entropy(logits, batch().targets, label_smoothing=smoothing(config), reduction="sum")
    torch.testing.assert_close(report.loss_sum, expected)
    torch.testing.assert_close(report.nll_sum, F.cross_entropy(logits, batch().targets, reduction="sum").detach())


@pytest.mark.parametrize("config", CONFIGS)
def test_both_ways_give_the_same_gradients(config: Any) -> None:
    found = []
    for output in (LinearOutput, OpaqueOutput):
        model = FixedModel(output)
        criterions.build(config)(model, batch()).loss_sum.backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for fused, plain in zip(*found):
        torch.testing.assert_close(fused, plain, rtol=1e-10, atol=1e-12)


def test_the_denominator_counts_target_tokens() -> None:
    report = criterions.build(CrossEntropyConfig())(FixedModel(), batch())
    assert (report.denominator.item(), report.num_tokens.item(), report.num_sentences) == (5, 5, 2)


def test_only_the_loss_carries_a_gradient() -> None:
    report = criterions.build(LabelSmoothedCrossEntropyConfig())(FixedModel(balance=0.5), batch())
    assert report.loss_sum.requires_grad
    assert not report.nll_sum.requires_grad
    assert not report.denominator.requires_grad
    assert not report.auxiliary["balance"].requires_grad


@pytest.mark.parametrize("weights, weight", [({}, 1.0), ({"balance": 0.01}, 0.01)])
def test_an_auxiliary_mean_enters_as_weight_times_mean_times_denominator(
    weights: dict[str, float], weight: float
) -> None:
    model = FixedModel(balance=0.5)
    plain = criterions.build(CrossEntropyConfig())(FixedModel(), batch())
    report = criterions.build(CrossEntropyConfig(auxiliary_weights=weights))(model, batch())
    assert (report.loss_sum - plain.loss_sum).item() == pytest.approx(weight * 0.5 * 5)
    assert report.auxiliary["balance"].item() == pytest.approx(weight * 0.5 * 5)
    torch.testing.assert_close(report.nll_sum, plain.nll_sum)
    (report.loss_sum / report.denominator).backward()
    assert model.means["balance"].grad.item() == pytest.approx(weight)


def test_a_weight_for_a_loss_that_the_model_does_not_report_is_refused() -> None:
    criterion = criterions.build(CrossEntropyConfig(auxiliary_weights={"balanse": 0.1}))
    with pytest.raises(UsageError, match=r"'balanse'.*balance.*did you mean 'balance'"):
        criterion(FixedModel(balance=0.5), batch())


@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_a_share_of_smoothing_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match=f"label_smoothing={value}"):
        LabelSmoothedCrossEntropyConfig(label_smoothing=value)


def test_the_smoothed_loss_exceeds_the_likelihood_of_a_sure_model() -> None:
    model = FixedModel()
    with torch.no_grad():
        model.output.linear()[0].zero_()  # type: ignore[index]
        model.output.linear()[1].fill_(-9.0).index_fill_(0, batch().targets, 9.0)  # type: ignore[index, union-attr]
    report = criterions.build(LabelSmoothedCrossEntropyConfig())(model, batch())
    assert report.loss_sum > report.nll_sum
