"""Scores of given translations: in one pass and step by step, and as a search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt.data.batching.batch import collate
from nmt.engines import model_engine
from nmt.interface import EncoderDecoder
from nmt.models import models
from nmt.search.config import LengthPenalty
from nmt.search.forced import ForcedSearch
from nmt.search.requests import Request, Sentences
from nmt.testing.subjects import (
    all_log_probabilities,
    engine_of,
    ensemble_of,
    forced_scores,
    search_with,
    single_sentence,
    subject,
    toy_batch,
)
from tests.unit.search.test_search import padded, some_settings
from tests.unit.search.toy import EOS, Settings, ToyModel

Pieces = tuple[int, ...]
some_source = st.lists(st.integers(1, 7), max_size=5).map(lambda ids: (*(one for one in ids if one != EOS), EOS))
some_target = st.lists(st.sampled_from([1, 4, 5, 6, 7]), max_size=5).map(tuple)

SOURCE_LENGTHS, TARGET_LENGTHS = (2, 7, 5, 1), (4, 1, 6, 2)


def targets_of(model: EncoderDecoder) -> tuple[Tensor, Tensor, list[Tensor]]:
    batch = toy_batch(model, SOURCE_LENGTHS, TARGET_LENGTHS)
    return batch.source, batch.source_lengths, list(torch.split(batch.targets, batch.target_lengths.tolist()))


@pytest.mark.parametrize("name", models.names())
def test_one_pass_and_single_steps_agree_for_every_architecture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_engine, "_SCORES_AT_ONCE", 40)  # the vocabulary in several parts
    model = subject(name).model(1)
    source, lengths, targets = targets_of(model)
    sources = Sentences.of_tensors(source, lengths).sources
    at_once = engine_of(model).target_scores(sources, [target.numpy() for target in targets])
    assert at_once is not None
    for row, (found, expected) in enumerate(
        zip(map(torch.from_numpy, at_once), forced_scores(model, source, lengths, targets))
    ):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        one = collate([source[row, : lengths[row]].numpy()], [targets[row].numpy()])
        by_definition = all_log_probabilities(model, one)[0].gather(1, targets[row][:, None])[:, 0]
        torch.testing.assert_close(found, by_definition, atol=1e-4, rtol=0)


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("ensemble", [False, True])
def test_as_a_search_it_finds_the_targets_with_their_scores(attention: bool, ensemble: bool) -> None:
    model = subject("transformer").model(1)
    source, lengths, targets = targets_of(model)
    requests = [Request(target=tuple(target[:-1].tolist())) for target in targets]
    search = ForcedSearch(LengthPenalty.power, 1.0)
    engine = ensemble_of([model, model]) if ensemble else model
    found = search_with(search, engine, source, lengths, attention=attention, requests=requests)
    for row, ((hypothesis,), target) in enumerate(zip(found, targets)):
        assert hypothesis.tokens.tolist() == target.tolist() and hypothesis.finished
        assert hypothesis.log_probability == pytest.approx(float(hypothesis.token_scores.sum()), abs=1e-5)
        assert hypothesis.score == pytest.approx(hypothesis.log_probability / len(target), abs=1e-5)
        if attention:
            assert hypothesis.attention is not None and hypothesis.attention.shape == (len(target), int(lengths[row]))
            np.testing.assert_allclose(hypothesis.attention.sum(1), np.ones(len(target)), rtol=1e-5)
        else:
            assert hypothesis.attention is None


@given(
    seed=st.integers(0, 10**6),
    pairs=st.lists(st.tuples(some_source, some_target), min_size=1, max_size=4),
    options=some_settings,
)
def test_scores_are_those_of_the_definition(seed: int, pairs: list[tuple[Pieces, Pieces]], options: Settings) -> None:
    model, sources = ToyModel(seed), [source for source, _ in pairs]
    kind = LengthPenalty.gnmt if options.gnmt else LengthPenalty.power
    requests = [Request(target=target) for _, target in pairs]
    found = search_with(ForcedSearch(kind, options.alpha), model, *padded(sources), requests=requests)
    for (hypothesis,), (source, target) in zip(found, pairs):
        tokens = (*target, EOS)
        expected = [model.log_probabilities(source, tokens[:t])[token] for t, token in enumerate(tokens)]
        assert hypothesis.token_scores.tolist() == pytest.approx(expected, abs=1e-4)
        assert hypothesis.score == pytest.approx(sum(expected) / options.penalty(len(tokens)), abs=1e-4)


def test_an_alignment_is_of_the_sentence_itself() -> None:
    batch = toy_batch(subject("transformer").model(1), SOURCE_LENGTHS, TARGET_LENGTHS)
    model = subject("transformer").model(1)
    targets = list(torch.split(batch.targets, batch.target_lengths.tolist()))
    requests = [Request(target=tuple(target[:-1].tolist())) for target in targets]
    search = ForcedSearch(LengthPenalty.gnmt, 0.6)
    together = search_with(search, model, batch.source, batch.source_lengths, attention=True, requests=requests)
    for row, (hypothesis,) in enumerate(together):
        single = single_sentence(batch, row)
        ((expected,),) = search_with(
            search, model, single.source, single.source_lengths, attention=True, requests=[requests[row]]
        )
        assert hypothesis.attention is not None and expected.attention is not None
        np.testing.assert_allclose(hypothesis.attention, expected.attention, atol=1e-5)


def test_a_target_that_the_model_cannot_write_loses_its_end() -> None:
    search, rows = ForcedSearch(LengthPenalty.gnmt, 0.6), padded([(4, EOS)])
    ((cut,),) = search_with(search, ToyModel(1, limit=3), *rows, requests=[Request(target=(4, 5, 6))])
    ((whole,),) = search_with(search, ToyModel(1, limit=3), *rows, requests=[Request(target=(4, 5))])
    assert cut.tokens.tolist() == whole.tokens.tolist() == [4, 5, EOS] and cut.score == whole.score
    assert whole.finished and not cut.finished
