"""R-Drop, word distillation and guided alignment against their formulas, written out position by position."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.criterions import criterions
from nmt.criterions.config import (
    CrossEntropyConfig,
    GuidedAlignmentConfig,
    LabelSmoothedCrossEntropyConfig,
    RDropConfig,
    WordDistillationConfig,
)
from nmt.criterions.cross_entropy import WordDistillation
from nmt.data.batching.batch import Batch
from nmt.errors import UsageError
from nmt.interface import DecoderOutput, LossReport
from nmt.models.output_layers import LinearOutput
from tests.unit.criterions.tiny import WIDTH, TinyModel, assert_same_gradients, batch_of, gradients

BATCH = batch_of(([4, 5, 6], [5, 4]), ([7], [6, 6, 7]))
# Sentence, source and target position: y1 of the first has two links, y2 of the second none, its eos none either.
PAIRS = torch.tensor([[0, 0, 0], [0, 2, 0], [0, 1, 1], [1, 0, 0], [1, 0, 2]])
ALIGNED = batch_of(([4, 5, 6], [5, 4]), ([7], [6, 6, 7]), alignments=PAIRS)


def cross_entropy(model: TinyModel, batch: Batch = BATCH, smoothing: float = 0.0) -> LossReport:
    config: Any = LabelSmoothedCrossEntropyConfig(label_smoothing=smoothing) if smoothing else CrossEntropyConfig()
    return criterions.build(config)(model, batch)


# --- R-Drop


class TwoPasses(TinyModel):
    """Hidden states that a test knows: one set of parameters a pass."""

    def __init__(self, **auxiliary: float) -> None:
        super().__init__(**auxiliary)
        draw = torch.Generator().manual_seed(9)
        passes = [torch.randn(7, WIDTH, dtype=torch.float64, generator=draw) for _ in range(2)]
        self.passes = torch.nn.ParameterList(passes)
        self.calls = 0

    def forward(self, batch: Batch, attention: Any = None) -> DecoderOutput:
        self.calls += 1
        return DecoderOutput(self.passes[self.calls - 1], auxiliary=dict(self.means.items()))


class ScoresAlone(LinearOutput):
    """An output layer that is not linear, as far as others know."""

    def linear(self) -> None:
        return None


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_r_drop_is_the_formula_of_its_paper(smoothing: float, linear: bool) -> None:
    model = TwoPasses()
    if not linear:
        assert isinstance(model.output, LinearOutput)
        model.output.__class__ = ScoresAlone
    report = criterions.build(RDropConfig(label_smoothing=smoothing, divergence_weight=0.7))(model, BATCH)
    logits = [model.output.logits(hidden) for hidden in model.passes]
    losses = [F.cross_entropy(each, BATCH.targets, label_smoothing=smoothing, reduction="sum") for each in logits]
    nll = [F.cross_entropy(each, BATCH.targets, reduction="sum").item() for each in logits]
    one, other = (each.log_softmax(1) for each in logits)
    divergence = (one.exp() * (one - other)).sum() + (other.exp() * (other - one)).sum()
    expected = losses[0] + losses[1] + 0.7 * divergence / 2
    torch.testing.assert_close(report.loss_sum, expected)
    assert report.nll_sum.item() == pytest.approx(sum(nll) / 2) and not report.nll_sum.requires_grad
    assert report.auxiliary["divergence"].item() == pytest.approx(0.35 * divergence.item())
    assert report.denominator.item() == 7
    assert_same_gradients(gradients(model, report.loss_sum), gradients(model, expected))


def test_without_dropout_r_drop_is_twice_the_cross_entropy() -> None:
    report = criterions.build(RDropConfig(label_smoothing=0.1))(TinyModel().train(), BATCH)
    torch.testing.assert_close(report.loss_sum, 2 * cross_entropy(TinyModel(), smoothing=0.1).loss_sum)


def test_the_passes_of_r_drop_have_dropout_of_their_own() -> None:
    torch.manual_seed(1)
    report = criterions.build(RDropConfig())(TinyModel(dropout=0.5).train(), BATCH)
    assert report.auxiliary["divergence"] > 0.0


def test_auxiliary_losses_of_both_passes_count() -> None:
    config = RDropConfig(auxiliary_weights={"balance": 0.1})
    report = criterions.build(config)(TwoPasses(balance=0.5), BATCH)
    plain = criterions.build(RDropConfig())(TwoPasses(), BATCH)
    assert report.auxiliary["balance"].item() == pytest.approx(2 * 0.1 * 0.5 * 7)
    assert (report.loss_sum - plain.loss_sum).item() == pytest.approx(0.7)


# --- word-level distillation


def distillation(teacher: TinyModel, weight: float, smoothing: float = 0.0) -> WordDistillation:
    config = WordDistillationConfig(distillation_weight=weight, label_smoothing=smoothing, teacher="somewhere")
    built = criterions.build(config, SimpleNamespace(teacher=teacher))
    assert isinstance(built, WordDistillation)
    return built


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_distillation_mixes_the_targets_with_the_teachers_distributions(smoothing: float) -> None:
    student, teacher = TinyModel(seed=1), TinyModel(seed=2).requires_grad_(False).eval()
    report = distillation(teacher, 0.3, smoothing)(student, BATCH)
    logits, wanted = (each.output.logits(each(BATCH).hidden) for each in (student, teacher))
    targets = F.cross_entropy(logits, BATCH.targets, label_smoothing=smoothing, reduction="sum")
    taught = F.cross_entropy(logits, wanted.softmax(1), reduction="sum")
    expected = 0.7 * targets + 0.3 * taught
    torch.testing.assert_close(report.loss_sum, expected)
    torch.testing.assert_close(report.nll_sum, cross_entropy(student).nll_sum)
    assert report.auxiliary["distillation"].item() == pytest.approx(0.3 * taught.item())
    assert report.denominator.item() == 7
    assert_same_gradients(gradients(student, report.loss_sum), gradients(student, expected))


def test_without_a_share_of_the_teacher_distillation_is_the_cross_entropy() -> None:
    report = distillation(TinyModel(seed=2), 0.0)(TinyModel(), BATCH)
    torch.testing.assert_close(report.loss_sum, cross_entropy(TinyModel()).loss_sum)


def test_a_student_that_equals_its_teacher_has_nothing_left_to_learn_from_it() -> None:
    report = distillation(TinyModel(), 1.0)(student := TinyModel(), BATCH)
    for gradient in gradients(student, report.loss_sum).values():
        torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_the_teacher_is_no_part_of_what_is_trained_or_saved() -> None:
    teacher = TinyModel(seed=2, dropout=0.5).eval()
    criterion = distillation(teacher, 1.0).train()
    assert not list(criterion.parameters()) and not criterion.state_dict()
    assert not teacher.training
    losses = [criterion(TinyModel(), BATCH).loss_sum for _ in range(2)]
    assert losses[0] == losses[1]
    losses[0].backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())


# --- guided alignment


def slow_alignment_loss(attention: Tensor) -> Tensor:
    """attention [B, T, S]"""
    total = torch.zeros((), dtype=torch.float64)
    for sentence, target in {(b, t) for b, _, t in PAIRS.tolist()}:
        linked = [s for b, s, t in PAIRS.tolist() if (b, t) == (sentence, target)]
        for source in linked:
            total = total - attention[sentence, target, source].log() / len(linked)
    return total


def attention_of(model: TinyModel, layer: int, heads: int) -> Tensor:
    from nmt.interface import AttentionRequest

    maps = model(ALIGNED, AttentionRequest()).attention.maps["cross"]
    return maps[layer - 1][:, :heads].mean(1)


@pytest.mark.parametrize(
    ("options", "layer", "heads"),
    [
        ({}, 3, 2),
        ({"alignment_layer": 1}, 1, 2),
        ({"alignment_heads": 1}, 3, 1),
        ({"alignment_layer": 2, "alignment_heads": 1}, 2, 1),
    ],
)
def test_guided_alignment_adds_the_cross_entropy_of_the_links(options: dict[str, int], layer: int, heads: int) -> None:
    model = TinyModel(layers=3)
    config = GuidedAlignmentConfig(label_smoothing=0.1, alignment_weight=0.2, **options)
    report = criterions.build(config)(model, ALIGNED)
    expected = cross_entropy(model, smoothing=0.1).loss_sum + 0.2 * slow_alignment_loss(
        attention_of(model, layer, heads)
    )
    torch.testing.assert_close(report.loss_sum, expected, rtol=1e-5, atol=1e-6)
    assert report.denominator.item() == 7
    found = gradients(model, report.loss_sum)
    assert_same_gradients(found, gradients(model, expected), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch", [BATCH, batch_of(([4], [5]), alignments=torch.zeros(0, 3, dtype=torch.int64))])
def test_without_links_guided_alignment_is_the_cross_entropy(batch: Batch) -> None:
    report = criterions.build(GuidedAlignmentConfig(label_smoothing=0.1))(TinyModel(), batch)
    torch.testing.assert_close(report.loss_sum, cross_entropy(TinyModel(), batch, smoothing=0.1).loss_sum)


def test_attention_that_is_zero_gives_no_infinite_loss() -> None:
    model = TinyModel()
    with torch.no_grad():
        model.source.mul_(1e6)
    report = criterions.build(GuidedAlignmentConfig(alignment_heads=1))(model, ALIGNED)
    assert report.loss_sum.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(model, report.loss_sum).values())


class NoAttention(TinyModel):
    def _maps(self, memory: Any, batch: Batch) -> tuple[Tensor, ...]:
        return ()


@pytest.mark.parametrize(
    ("model", "options", "complaint"),
    [
        (NoAttention(), {}, "needs a model with attention to the source"),
        (TinyModel(layers=2), {"alignment_layer": 3}, "alignment_layer=3.* 2 decoder layers"),
        (TinyModel(layers=2), {"alignment_heads": 3}, "alignment_heads=3.* layer 2 has 2"),
    ],
)
def test_attention_that_is_not_there_cannot_be_guided(
    model: TinyModel, options: dict[str, int], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        criterions.build(GuidedAlignmentConfig(**options))(model, ALIGNED)


# --- options


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (RDropConfig, {"divergence_weight": -1.0}),
        (RDropConfig, {"label_smoothing": 1.0}),
        (WordDistillationConfig, {"distillation_weight": 1.5}),
        (GuidedAlignmentConfig, {"alignment_weight": -0.1}),
        (GuidedAlignmentConfig, {"alignment_layer": 0}),
        (GuidedAlignmentConfig, {"alignment_heads": 0}),
    ],
)
def test_impossible_options_are_refused_by_name(config: type, options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"criterion.{next(iter(options))}="):
        config(**options)
