"""One ensemble of every registered architecture."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nmt.data.batching.batch import collate
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder
from nmt.models import models
from nmt.search import searches
from nmt.search.config import BeamConfig
from nmt.search.decoding import Engine
from nmt.search.requests import Sentences
from nmt.testing.subjects import (
    all_log_probabilities,
    engine_of,
    ensemble_of,
    search_with,
    single_sentence,
    subject,
    toy_batch,
)

SOURCE_LENGTHS = (2, 9, 5, 1)


@pytest.fixture(scope="module")
def members() -> list[EncoderDecoder]:
    return [subject(name).model(seed) for seed, name in enumerate(models.names())]


def test_what_it_finds_has_the_mean_of_the_members_probabilities(members: list[EncoderDecoder]) -> None:
    batch = toy_batch(members[0], SOURCE_LENGTHS, SOURCE_LENGTHS)
    search = searches.build(BeamConfig(beam_size=3, max_len_a=0.0, max_len_b=6), nbest=3)
    for sentence, found in enumerate(search_with(search, ensemble_of(members), batch.source, batch.source_lengths)):
        source = single_sentence(batch, sentence).source[0].numpy()
        for hypothesis in found:
            one = collate([source], [hypothesis.tokens])
            each = torch.stack([all_log_probabilities(member, one)[0] for member in members])  # [models, T, V]
            mean = each.exp().mean(0).log().gather(1, torch.from_numpy(hypothesis.tokens)[:, None])[:, 0]
            torch.testing.assert_close(torch.from_numpy(hypothesis.token_scores), mean, atol=1e-4, rtol=0)


def test_what_it_finds_does_not_depend_on_batch_mates(members: list[EncoderDecoder]) -> None:
    batch = toy_batch(members[0], SOURCE_LENGTHS, SOURCE_LENGTHS)
    search = searches.build(BeamConfig(beam_size=3, max_len_a=0.0, max_len_b=6))
    together = search_with(search, ensemble_of(members), batch.source, batch.source_lengths)
    for sentence, (found,) in enumerate(together):
        single = single_sentence(batch, sentence)
        (expected,) = search_with(search, ensemble_of(members), single.source, single.source_lengths)[0]
        assert found.tokens.tolist() == expected.tokens.tolist()
        np.testing.assert_allclose(found.token_scores, expected.token_scores, atol=1e-4)


def test_weights_say_how_much_each_member_counts(members: list[EncoderDecoder]) -> None:
    two, weights = members[:2], (3.0, 1.0)
    batch = toy_batch(two[0], SOURCE_LENGTHS, SOURCE_LENGTHS)
    search = searches.build(BeamConfig(beam_size=2, max_len_a=0.0, max_len_b=5))
    found = search_with(search, ensemble_of(two, weights), batch.source, batch.source_lengths)
    for sentence, (hypothesis,) in enumerate(found):
        source = single_sentence(batch, sentence).source[0].numpy()
        one = collate([source], [hypothesis.tokens])
        first, second = (all_log_probabilities(member, one)[0].exp() for member in two)
        mean = (0.75 * first + 0.25 * second).log().gather(1, torch.from_numpy(hypothesis.tokens)[:, None])[:, 0]
        torch.testing.assert_close(torch.from_numpy(hypothesis.token_scores), mean, atol=1e-4, rtol=0)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, -1.0), (1.0, float("inf")), (1.0, 2.0, 3.0)])
def test_weights_that_are_not_one_positive_number_each_are_refused(
    members: list[EncoderDecoder], weights: tuple[float, ...]
) -> None:
    with pytest.raises(
        UsageError, match="--ensemble-weights 1.*: give a positive number for each of the 2 models, in order"
    ):
        ensemble_of(members[:2], weights)


@pytest.mark.parametrize("weights", [(1e308, 1e308), (1e-320, 1e308), (float("nan"), 1.0), (-1.0, 2.0)])
def test_weights_whose_ratio_is_no_number_are_refused(
    members: list[EncoderDecoder], weights: tuple[float, float]
) -> None:
    with pytest.raises(UsageError, match="give a positive number for each of the 2 models"):
        ensemble_of(members[:2], weights)


def test_attention_is_weighted_as_probabilities_are() -> None:
    two = [subject("transformer").model(seed).eval() for seed in (1, 2)]
    batch = toy_batch(two[0], SOURCE_LENGTHS, SOURCE_LENGTHS)

    def attention(engine: Engine) -> np.ndarray:
        sources = Sentences.of_tensors(batch.source, batch.source_lengths).sources
        found = engine.begin(sources, 1).step(np.full(len(SOURCE_LENGTHS), 4), attention=True).attention
        assert found is not None
        return found

    first, second, both = (attention(one) for one in (*map(engine_of, two), ensemble_of(two, (3, 1))))
    np.testing.assert_allclose(both, 0.75 * first + 0.25 * second, rtol=1e-5)
