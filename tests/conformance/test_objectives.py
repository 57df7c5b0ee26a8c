"""Objectives over whole sentences and every registered model: any of them can be sampled from and refined."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt.criterions import criterions
from nmt.criterions.config import ExpectedRewardConfig, MinimumRiskConfig
from nmt.criterions.sentence_rewards import sentence_gleu
from nmt.criterions.sequences import decode, draw, with_targets
from nmt.models import models
from nmt.testing.subjects import TOLERANCE, all_log_probabilities, subject, toy_batch
from nmt.training.setup.parts import sampler

LENGTHS = ([5, 3, 1], [4, 1, 6])


@pytest.mark.parametrize("name", models.names())
def test_scores_of_translations_are_those_of_each_beside_its_own_copy_of_the_source(name: str) -> None:
    model = subject(name).model()
    batch = toy_batch(model, *LENGTHS)
    drawn = draw(sampler(ExpectedRewardConfig(samples=4, max_len_b=3)), model, batch)
    many = with_targets(batch, drawn.tokens.flatten(0, 1), drawn.lengths.flatten())
    with torch.no_grad():
        scores, _ = decode(model, model.encode(batch.source, batch.source_lengths), batch, drawn)
    expected = torch.cat(all_log_probabilities(model, many)).gather(1, many.targets[:, None]).squeeze(1)
    positions = torch.arange(drawn.tokens.size(2))
    real = positions < drawn.lengths[:, :, None]  # [B, K, T]
    forced = (positions == drawn.lengths[:, :, None] - 1) & ~drawn.finished[:, :, None]  # eos of the length limit
    torch.testing.assert_close(scores[real], expected.where(~forced[real], 0.0), rtol=0.0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "config",
    [
        ExpectedRewardConfig(3, max_len_b=3),
        pytest.param(MinimumRiskConfig(3, max_len_b=3), marks=pytest.mark.nightly),  # samples and decodes the same way
    ],
)
@pytest.mark.parametrize("name", models.names())
def test_every_model_has_gradients_that_repeat_under_the_same_seed(name: str, config: Any) -> None:
    model = subject(name).model().train()
    batch = toy_batch(model, *LENGTHS)
    criterion = criterions.build(config, SimpleNamespace(sampler=sampler(config), reward=sentence_gleu))
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        model.zero_grad()
        criterion(model, batch).loss_sum.backward()
        found.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert model.training
    assert any(gradient.any() for gradient in found[0])
    for first, second in zip(*found):
        assert first.isfinite().all()
        assert torch.equal(first, second)
