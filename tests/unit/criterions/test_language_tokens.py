"""Targets that start with the token of a language: the model reads it, and no loss counts it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.criterions import criterions
from nmt.criterions.config import (
    CrossEntropyConfig,
    ExpectedRewardConfig,
    GuidedAlignmentConfig,
    LabelSmoothedCrossEntropyConfig,
    MinimumRiskConfig,
    RDropConfig,
    WordDistillationConfig,
)
from nmt.criterions.sentence_rewards import sentence_gleu
from nmt.criterions.sequences import references, with_targets
from nmt.data.batching.batch import ALIGNMENTS, Batch, collate
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.interface import AttentionRequest
from nmt.training.setup.parts import sampler
from tests.unit.criterions.tiny import TinyModel, assert_same_gradients, batch_of, gradients

LANGUAGE, OTHER = 5, 4  # tokens of two target languages
PAIRS = (([4, 6], [7, 6, 4]), ([5], [6]))


def batch(**extras: Tensor) -> Batch:
    """The sentence pairs, the first to one language and the second to the other."""
    sources = [np.array([*source, EOS]) for source, _ in PAIRS]
    targets = [np.array([token, *target, EOS]) for token, (_, target) in zip((LANGUAGE, OTHER), PAIRS)]
    return collate(sources, targets, None, extras, started=1)


def test_the_decoder_reads_the_token_which_is_no_target() -> None:
    made = batch()
    assert made.target_in.tolist() == [[BOS, LANGUAGE, 7, 6, 4], [BOS, OTHER, 6, PAD, PAD]]
    assert made.targets.tolist() == [7, 6, 4, EOS, 6, EOS] and made.num_tokens == 6
    assert made.target_lengths.tolist() == [5, 3] and made.starts.tolist() == [[LANGUAGE], [OTHER]]
    assert made.whole().targets.tolist() == [PAD, 7, 6, 4, EOS, PAD, 6, EOS] and made.whole().num_tokens == 8


def by_definition(model: TinyModel) -> Tensor:
    """The log-likelihood of all targets after their tokens."""
    tokens = zip((LANGUAGE, OTHER), PAIRS)
    scores = [model.log_probabilities([*s, EOS], [token, *t, EOS])[1:] for token, (s, t) in tokens]
    return torch.cat(scores).sum()


def build(config: Any) -> Any:
    return criterions.build(config, SimpleNamespace(teacher=TinyModel(2).eval(), sampler=None, reward=None))


def test_cross_entropy_is_that_of_the_text_after_the_token() -> None:
    model = TinyModel()
    report = criterions.build(CrossEntropyConfig())(model, batch())
    found, expected = gradients(model, report.loss_sum), gradients(model, -by_definition(model))
    assert (float(report.num_tokens), float(report.denominator)) == (6.0, 6.0)
    assert_same_gradients(found, expected)
    torch.testing.assert_close(report.nll_sum, -by_definition(model).detach())


@pytest.mark.parametrize(
    "config", [LabelSmoothedCrossEntropyConfig(), RDropConfig(), WordDistillationConfig(), GuidedAlignmentConfig()]
)
def test_other_losses_over_tokens_leave_the_token_out(config: Any) -> None:
    """With a decoder that looks at the last token only, the rest of a target is a sentence whose bos is the token."""
    pairs = [(s, t, token) for token, (s, t) in zip((LANGUAGE, OTHER), PAIRS)]
    links = torch.tensor([[0, 0, 1], [0, 1, 2], [1, 0, 1]])  # word i of a target is at position i + 1
    model, criterion = (
        TinyModel(),
        (criterions.build(config) if not isinstance(config, WordDistillationConfig) else build(config)),
    )
    report = criterion(model, batch(**{ALIGNMENTS: links}))
    alone = batch_of(*((s, t) for s, t, _ in pairs), **{ALIGNMENTS: links - torch.tensor([0, 0, 1])})
    alone.target_in[:, 0] = torch.tensor([LANGUAGE, OTHER])
    expected = criterion(model, alone)
    torch.testing.assert_close(report.loss_sum, expected.loss_sum)
    torch.testing.assert_close(report.nll_sum, expected.nll_sum)
    assert float(report.denominator) == float(expected.denominator) == 6
    assert report.auxiliary.keys() == expected.auxiliary.keys()


def test_attention_has_a_row_for_the_token() -> None:
    maps = TinyModel()(batch(), AttentionRequest()).attention.maps["cross"][0]
    assert maps.shape == (2, 2, 5, 3)


def test_samples_and_references_are_texts_after_the_token() -> None:
    made = batch()
    assert references(made).tokens.tolist() == [[[7, 6, 4, EOS]], [[6, EOS, PAD, PAD]]]
    many = with_targets(
        made, torch.tensor([[7, EOS, PAD], [EOS, PAD, PAD], [4, 4, EOS], [6, EOS, PAD]]), torch.tensor([2, 1, 3, 2])
    )
    assert many.target_in.tolist() == [
        [BOS, LANGUAGE, 7, PAD],
        [BOS, LANGUAGE, PAD, PAD],
        [BOS, OTHER, 4, 4],
        [BOS, OTHER, 6, PAD],
    ]
    assert many.targets.tolist() == [7, EOS, EOS, 4, 4, EOS, 6, EOS]
    assert (many.target_lengths.tolist(), many.started) == ([3, 2, 4, 3], 1)


@pytest.mark.parametrize("config", [ExpectedRewardConfig(samples=3), MinimumRiskConfig(samples=3)])
def test_losses_over_sampled_sentences_start_all_of_them_with_the_token(config: Any) -> None:
    model, made = TinyModel(), batch()
    criterion = criterions.build(config, SimpleNamespace(sampler=sampler(config), reward=sentence_gleu))
    report = criterion(model, made)
    torch.testing.assert_close(report.nll_sum, -by_definition(model).detach())
    drawn = sampler(config)(model, made, 1)
    other = sampler(config)(model, collate([np.array([4, 6, EOS])], [np.array([LANGUAGE, EOS])], started=1), 1)
    assert torch.equal(other.tokens[0], drawn.tokens[0, :, : other.tokens.size(2)])
    assert not torch.equal(sampler(config)(model, batch_of(*PAIRS), 1).tokens, drawn.tokens)
