"""The law of weights: weight 2 counts a pair twice, weight 0 leaves it out, in loss, denominator and gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt.criterions import criterions
from nmt.criterions.config import (
    CrossEntropyConfig,
    GuidedAlignmentConfig,
    LabelSmoothedCrossEntropyConfig,
    RDropConfig,
    WordDistillationConfig,
)
from nmt.data.batching.batch import WEIGHTS, collate
from nmt.data.vocabulary import EOS
from nmt.interface import LossReport
from nmt.layers import linear_cross_entropy
from nmt.models.output_layers import LinearOutput
from nmt.testing.subjects import subject
from tests.unit.criterions.tiny import TinyModel, assert_same_gradients, batch_of, gradients

FIRST, SECOND, THIRD = ([4, 5, 6], [5, 4]), ([7], [6, 6, 7]), ([5, 7], [4])
LINKS = ([[0, 0], [2, 1]], [[0, 2]], [[1, 0]])  # source and target position, of each pair
CONFIGS = {
    "cross_entropy": CrossEntropyConfig(),
    "smoothed": LabelSmoothedCrossEntropyConfig(label_smoothing=0.2),
    "r_drop": RDropConfig(divergence_weight=0.7),
    "guided_alignment": GuidedAlignmentConfig(alignment_weight=0.5),
    "word_distillation": WordDistillationConfig(distillation_weight=0.4, teacher="somewhere"),
}


class ScoresAlone(LinearOutput):
    """An output layer whose loss is not fused."""

    def linear(self) -> None:
        return None


def batch(*numbers: int, weights: list[float] | None = None) -> Any:
    pairs = [(FIRST, SECOND, THIRD)[number] for number in numbers]
    links = [[row, *link] for row, number in enumerate(numbers) for link in LINKS[number]]
    extras = {"alignments": torch.tensor(links)}
    if weights is not None:
        lengths = torch.tensor([len(target) + 1 for _, target in pairs])
        extras[WEIGHTS] = torch.tensor(weights).repeat_interleave(lengths)
    return batch_of(*pairs, **extras)


@pytest.fixture(params=[True, False], ids=["fused", "not fused"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TinyModel:
    monkeypatch.setitem(linear_cross_entropy.CHUNK_ELEMENTS, "cpu", 1)  # several chunks: 16 rows each
    model = TinyModel()
    if not request.param:
        model.output.__class__ = ScoresAlone
    return model


@pytest.mark.parametrize("name", CONFIGS)
def test_the_law_holds(name: str, model: TinyModel) -> None:
    parts = SimpleNamespace(teacher=TinyModel(seed=2).requires_grad_(False).eval())
    needed = (parts,) if name == "word_distillation" else ()
    criterion = criterions.build(CONFIGS[name], *needed)
    numbers, weights = [0, 1, 2] * 3, [2.0, 0.0, 1.0] * 3
    weighted = criterion(model, batch(*numbers, weights=weights))
    repeated = criterion(model, batch(*[0, 0, 2] * 3))
    assert weighted.denominator == weighted.weight == repeated.denominator == 24 and weighted.num_tokens == 27
    torch.testing.assert_close(weighted.loss_sum, repeated.loss_sum, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weighted.nll_sum, repeated.nll_sum, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weighted.auxiliary, repeated.auxiliary, rtol=1e-12, atol=1e-12)
    of_both = gradients(model, weighted.loss_sum), gradients(model, repeated.loss_sum)
    assert_same_gradients(*of_both, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("started", [0, 1], ids=["without", "with language tokens"])
@pytest.mark.parametrize("name", ["transformer_moe", "lstm_moe"])
def test_the_law_holds_for_the_balance_of_experts(name: str, started: int) -> None:
    model, criterion = subject(name).model().double(), criterions.build(CONFIGS["smoothed"])

    def report(*pairs: tuple[list[int], list[int]], weights: list[float] | None = None) -> LossReport:
        sources, targets = ([np.array([*pair[side], EOS]) for pair in pairs] for side in (0, 1))
        counts = torch.tensor([len(target) - started for target in targets])
        extras = {} if weights is None else {WEIGHTS: torch.tensor(weights).repeat_interleave(counts)}
        result: LossReport = criterion(model, collate(sources, targets, None, extras, started))
        return result

    weighted, repeated = report(FIRST, SECOND, THIRD, weights=[2.0, 0.0, 1.0]), report(FIRST, FIRST, THIRD)
    assert repeated.auxiliary["load"] > 0.01 and repeated.auxiliary["importance"] > 0.01
    torch.testing.assert_close(weighted.auxiliary, repeated.auxiliary, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(weighted.loss_sum, repeated.loss_sum, rtol=1e-10, atol=1e-12)
    of_both = gradients(model, weighted.loss_sum), gradients(model, repeated.loss_sum)
    assert_same_gradients(*of_both, rtol=1e-8, atol=1e-12)
    tiny = report(FIRST, SECOND, THIRD, weights=[2.0**-29, 0.0, 2.0**-30])
    torch.testing.assert_close(tiny.loss_sum * 2**30, repeated.loss_sum, rtol=1e-10, atol=1e-12)


def test_weights_of_one_change_nothing(model: TinyModel) -> None:
    criterion = criterions.build(CONFIGS["smoothed"])
    ones, without = criterion(model, batch(0, 1, weights=[1.0, 1.0])), criterion(model, batch(0, 1))
    torch.testing.assert_close(ones.loss_sum, without.loss_sum, rtol=1e-14, atol=1e-14)
    assert_same_gradients(gradients(model, ones.loss_sum), gradients(model, without.loss_sum), rtol=1e-12, atol=1e-12)


def test_each_target_has_its_own_weight(model: TinyModel) -> None:
    """The gradient of a token with weight 3 is three times that of the token alone."""
    criterion, whole = criterions.build(CONFIGS["smoothed"]), batch(0)
    alone = [torch.eye(3, dtype=torch.float64)[i] for i in range(3)]
    of_tokens = [gradients(model, criterion(model, batch_of(FIRST, weights=w)).loss_sum) for w in alone]
    mixed = batch_of(FIRST, weights=torch.tensor([3.0, 0.0, 0.5]))
    expected = {name: 3 * of_tokens[0][name] + 0.5 * of_tokens[2][name] for name in of_tokens[0]}
    assert_same_gradients(gradients(model, criterion(model, mixed).loss_sum), expected, rtol=1e-6, atol=1e-9)
    assert whole.weights is None


def test_sums_are_not_rounded_under_autocast() -> None:
    """As sums without weights: autocast computes a product of matrices in bfloat16."""
    values, weights = torch.full((5000, 2), 1.001), torch.ones(5000)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(linear_cross_entropy.weighted_sum(values, weights), values.sum(0))
