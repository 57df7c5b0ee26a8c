"""bfloat16 where autocast asks for it: training and steps work, and the loss stays close."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch

from nmt.criterions import criterions
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.search.beam import BeamSearch
from nmt.search.config import BeamConfig
from nmt.testing.subjects import Subject, search_with, toy_batch
from tests.kinds import KINDS, some_by_day
from tests.unit.models.cuda_rules import CudaRules


@pytest.mark.parametrize("subject", some_by_day(KINDS))
def test_the_loss_in_bfloat16_is_close_and_its_gradients_are_finite(subject: Subject) -> None:
    model = subject.model()
    batch, criterion = toy_batch(model, (2, 9, 5), (6, 3, 8)), criterions.build(LabelSmoothedCrossEntropyConfig())
    exact = criterion(model, batch).loss_sum.item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        report = criterion(model, batch)
    report.loss_sum.backward()
    assert report.loss_sum.item() == pytest.approx(exact, rel=2e-2)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("training", [True, pytest.param(False, marks=pytest.mark.nightly)])  # steps cover eval mode
@pytest.mark.parametrize("subject", some_by_day(KINDS))
def test_where_some_functions_give_float32_as_on_a_gpu_types_agree(subject: Subject, training: bool) -> None:
    model = subject.model().train(training)
    batch, criterion = toy_batch(model, (2, 9, 5), (6, 3, 8)), criterions.build(LabelSmoothedCrossEntropyConfig())
    with torch.autocast("cpu", dtype=torch.bfloat16), CudaRules():
        loss = criterion(model, batch).loss_sum
    if training:
        loss.backward()
    assert torch.isfinite(loss)


@pytest.mark.parametrize("rules", [contextlib.nullcontext, CudaRules])
@pytest.mark.parametrize("subject", some_by_day(KINDS))
def test_steps_in_bfloat16_are_close(subject: Subject, rules: Callable[[], AbstractContextManager[Any]]) -> None:
    model = subject.model()
    batch = toy_batch(model, (2, 9, 5), (6, 3, 8))
    scores = []
    for enabled in (False, True):
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled), rules():
            memory, state = model.start(model.encode(batch.source, batch.source_lengths), 2)
            for token in (2, 5, 7):
                output = model.step(torch.full((6,), token), memory, state)
                state = output.state.rows(torch.tensor([1, 0, 2, 2, 5, 4]))
            scores.append(output.scores.float())
    spread = max(1.0, scores[0].std().item())  # of random parameters: some models give large scores
    torch.testing.assert_close(scores[1], scores[0], rtol=0.1, atol=0.15 * spread)


@pytest.mark.parametrize("subject", some_by_day(KINDS))
def test_a_model_in_bfloat16_searches(subject: Subject) -> None:
    model = subject.model()
    batch = toy_batch(model, (2, 9, 5), (6, 3, 8))
    model = model.to(torch.bfloat16)
    find = BeamSearch(BeamConfig(beam_size=3, max_len_a=0, max_len_b=3))
    for attention in (False, True):
        for (best,) in search_with(find, model, batch.source, batch.source_lengths, attention=attention):
            assert np.isfinite(best.token_scores).all()
            if best.attention is not None:
                np.testing.assert_allclose(best.attention.sum(1), 1, atol=0.02)
