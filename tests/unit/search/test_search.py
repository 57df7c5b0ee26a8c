"""Searches against an exhaustive one and a slow beam search written from the definition."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import DataError, UsageError
from nmt.interface import Hypothesis
from nmt.search.beam import BeamSearch
from nmt.search.config import BeamConfig, GreedyConfig, LengthPenalty, StopRule
from nmt.search.greedy import GreedySearch
from nmt.testing.subjects import ensemble_of, forced_scores, search_with
from tests.unit.search.toy import (
    EOS,
    Found,
    Settings,
    SlowEnsemble,
    ToyModel,
    exhaustive,
    slow_beam,
    slow_greedy,
    told_apart,
)

some_settings = st.builds(
    Settings,
    beam=st.integers(1, 5),
    gnmt=st.booleans(),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    a=st.sampled_from([0.0, 0.5, 1.0]),
    b=st.sampled_from([3, 4.5, 6]),
    min_len=st.integers(0, 3),
    stop=st.sampled_from(["first", "bound", "estimate", "all", "shrink"]),
    patience=st.sampled_from([0.4, 1.0, 1.5, 2.0]),
)
some_models = st.builds(
    ToyModel,
    seed=st.integers(0, 10**6),
    vocabulary=st.sampled_from([5, 8, 70, 200]),
    eos_bias=st.sampled_from([-2.0, 0.0, 2.0, 4.0]),
    limit=st.sampled_from([None, 2, 4]),
)
some_sources = st.lists(st.lists(st.integers(1, 4), max_size=5).map(lambda ids: (*ids, EOS)), min_size=1, max_size=5)


def beam_options(options: Settings) -> dict[str, Any]:
    """Of a ``BeamConfig``."""
    return {
        "beam_size": options.beam,
        "length_penalty": LengthPenalty.gnmt if options.gnmt else LengthPenalty.power,
        "lenpen": options.alpha,
        "max_len_a": options.a,
        "max_len_b": options.b,
        "min_len": options.min_len,
        "stop": StopRule[options.stop],
        "patience": options.patience,
        "no_repeat_ngram": options.ngram,
        "repetition_penalty": options.repetition,
        "forbid_unknown": options.forbid_unknown,
        "coverage_penalty": options.coverage,
    }


def beam_search(options: Settings) -> BeamSearch:
    return BeamSearch(BeamConfig(**beam_options(options)), options.nbest)


def padded(sources: list[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(source) for source in sources])
    rows = [[*source, *([0] * (int(lengths.max()) - len(source)))] for source in sources]
    return torch.tensor(rows), lengths


def assert_same(hypotheses: list[Hypothesis], expected: list[Found]) -> None:
    assert [tuple(one.tokens.tolist()) for one in hypotheses] == [one.tokens for one in expected]
    assert [one.score for one in hypotheses] == pytest.approx([one.score for one in expected], abs=1e-4)
    assert [one.log_probability for one in hypotheses] == pytest.approx([one.total for one in expected], abs=1e-4)
    assert [one.finished for one in hypotheses] == [one.finished for one in expected]


some_coverage = st.sampled_from([0.0, 0.0, 0.2, 1.0, 5.0])


@pytest.mark.slow
@given(model=some_models, sources=some_sources, options=some_settings, coverage=some_coverage, data=st.data())
def test_beam_search_equals_the_slow_one(model, sources, options, coverage, data):
    options = dataclasses.replace(options, nbest=data.draw(st.integers(1, options.beam)), coverage=coverage)
    results = search_with(beam_search(options), model, *padded(sources))
    for hypotheses, source in zip(results, sources):
        assert_same(hypotheses, slow_beam(model, source, options))


@given(
    seed=st.integers(0, 10**6),
    source=some_sources,
    gnmt=st.booleans(),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
    coverage=some_coverage,
)
def test_wide_beam_that_stops_by_bound_finds_the_best_translation_of_all(seed, source, gnmt, alpha, coverage):
    model = ToyModel(seed, vocabulary=6)
    options = Settings(beam=81, gnmt=gnmt, alpha=alpha, a=0, b=4, stop="bound", nbest=3, coverage=coverage)
    hypotheses = search_with(beam_search(options), model, *padded(source[:1]))[0]
    best = exhaustive(model, source[0], options)[:4]
    told_apart(one.score for one in best)
    assert_same(hypotheses, best[:3])


@given(
    seed=st.integers(0, 10**6),
    source=some_sources,
    alpha=st.sampled_from([1.0, 2.0, 4.0]),
    eos_bias=st.sampled_from([-3.0, 1.0, 4.0]),
)
def test_bound_stops_no_earlier_than_a_strong_penalty_allows(seed, source, alpha, eos_bias):
    """With it a much longer hypothesis overtakes finished ones."""
    options = Settings(beam=3, gnmt=False, alpha=alpha, a=0, b=8, stop="bound")
    endless = dataclasses.replace(options, nbest=1000)  # never has enough: searches to the limit
    model = ToyModel(seed, eos_bias=eos_bias)
    hypothesis = search_with(beam_search(options), model, *padded(source[:1]))[0][0]
    assert hypothesis.score == pytest.approx(slow_beam(model, source[0], endless)[0].score, rel=1e-4)


@given(model=some_models, sources=some_sources, options=some_settings)
def test_greedy_search_equals_the_slow_one(model, sources, options):
    search = GreedySearch(GreedyConfig(options.a, options.b, options.min_len))
    for hypotheses, source in zip(search_with(search, model, *padded(sources)), sources):
        assert_same(hypotheses, [slow_greedy(model, source, options)])


@given(model=some_models, sources=some_sources, options=some_settings)
def test_beam_of_one_without_penalty_is_greedy(model, sources, options):
    options = dataclasses.replace(options, beam=1, alpha=0.0, stop="first")
    greedy = search_with(GreedySearch(GreedyConfig(options.a, options.b, options.min_len)), model, *padded(sources))
    for one, other in zip(search_with(beam_search(options), model, *padded(sources)), greedy):
        assert one[0].tokens.tolist() == other[0].tokens.tolist()


@given(model=some_models, sources=some_sources, options=some_settings, data=st.data())
def test_translations_do_not_depend_on_batch_mates_or_their_order(model, sources, options, data):
    search = beam_search(options)
    order = data.draw(st.permutations(range(len(sources))))
    together = search_with(search, model, *padded([sources[index] for index in order]))
    for hypotheses, index in zip(together, order):
        alone = search_with(search, model, *padded([sources[index]]))[0]
        assert [one.tokens.tolist() for one in hypotheses] == [one.tokens.tolist() for one in alone]


@given(model=some_models, sources=some_sources, options=some_settings)
def test_token_scores_are_those_of_forced_scoring_and_sum_to_the_log_probability(model, sources, options):
    source, lengths = padded(sources)
    best = [hypotheses[0] for hypotheses in search_with(beam_search(options), model, source, lengths)]
    forced = forced_scores(model, source, lengths, [torch.from_numpy(one.tokens) for one in best])
    for one, scores in zip(best, forced):
        torch.testing.assert_close(torch.from_numpy(one.token_scores), scores, atol=1e-4, rtol=0)
        assert one.log_probability == pytest.approx(float(scores.sum()), abs=1e-4)


@pytest.mark.parametrize("name", ["beam", "greedy"])
@given(model=some_models, sources=some_sources, options=some_settings)
def test_attention_is_that_of_each_token_over_the_real_source(name, model, sources, options):
    if name == "beam":
        search = beam_search(options)
    else:
        search = GreedySearch(GreedyConfig(options.a, options.b, options.min_len))
    for hypotheses, source in zip(search_with(search, model, *padded(sources), attention=True), sources):
        tokens = tuple(hypotheses[0].tokens.tolist())
        expected = np.stack([model.attention(source, tokens[:t]) for t in range(len(tokens))])
        assert hypotheses[0].attention is not None
        np.testing.assert_allclose(hypotheses[0].attention, expected, atol=1e-5)


def test_attention_is_absent_unless_asked_for():
    assert search_with(beam_search(Settings()), ToyModel(1), *padded([(4, EOS)]))[0][0].attention is None


@given(
    seed=st.integers(0, 10**6),
    sources=some_sources,
    options=some_settings,
    coverage=some_coverage,
    weights=st.sampled_from([(), (3.0, 1.0, 0.5), (0.01, 1.0, 20.0)]),
)
def test_ensemble_searches_the_mean_of_probabilities(seed, sources, options, coverage, weights):
    options = dataclasses.replace(options, coverage=coverage)
    models = [ToyModel(seed, eos_bias=1.0, limit=6), ToyModel(seed + 1, limit=5), ToyModel(seed + 2)]
    results = search_with(beam_search(options), ensemble_of(models, weights), *padded(sources))
    for hypotheses, source in zip(results, sources):
        assert_same(hypotheses, slow_beam(SlowEnsemble(models, weights), source, options))


def test_ensemble_of_a_model_with_itself_is_that_model():
    source = padded([(4, 1, EOS), (4, EOS)])
    model = ToyModel(3)
    alone = search_with(beam_search(Settings()), model, *source)
    for one, other in zip(alone, search_with(beam_search(Settings()), ensemble_of([model, model]), *source)):
        assert one[0].tokens.tolist() == other[0].tokens.tolist()
        assert one[0].score == pytest.approx(other[0].score, abs=1e-5)


def test_ensemble_attention_is_the_mean_of_its_members():
    models = [ToyModel(3), ToyModel(4)]
    hypothesis = search_with(beam_search(Settings()), ensemble_of(models), *padded([(4, 1, EOS)]), attention=True)[0][0]
    expected = np.mean([model.attention((4, 1, EOS), ()) for model in models], axis=0)
    assert hypothesis.attention is not None
    np.testing.assert_allclose(hypothesis.attention[0], expected, atol=1e-5)


@given(model=some_models, sources=some_sources, options=some_settings)
def test_pad_and_bos_are_never_produced_and_eos_only_at_the_end(model, sources, options):
    for hypotheses in search_with(beam_search(options), model, *padded(sources)):
        for one in hypotheses:
            *pieces, last = one.tokens.tolist()
            assert last == EOS
            assert not {0, 2, EOS} & set(pieces)


def test_no_hypothesis_is_found_twice():
    results = search_with(beam_search(Settings(beam=5, nbest=5, b=6)), ToyModel(5), *padded([(4, 1, EOS)]))[0]
    assert len({tuple(one.tokens.tolist()) for one in results}) == len(results) == 5


def test_beam_wider_than_the_vocabulary_finds_what_there_is():
    model = ToyModel(2, vocabulary=5)  # two pieces, eos
    hypotheses = search_with(beam_search(Settings(beam=50, a=0, b=2, nbest=50)), model, *padded([(4, EOS)]))[0]
    assert {tuple(one.tokens.tolist()) for one in hypotheses} == {(a, EOS) for a in (1, 4)} | {
        (a, b, EOS) for a in (1, 4) for b in (1, 4)
    }


def test_model_without_scores_is_a_data_error():
    model = ToyModel(1)
    model.output[:] = float("nan")
    for search in (beam_search(Settings()), GreedySearch(GreedyConfig())):
        with pytest.raises(DataError, match="scores are NaN: its checkpoint is damaged"):
            search_with(search, model, *padded([(4, EOS)]))


def test_nbest_wider_than_the_beam_is_refused():
    with pytest.raises(UsageError, match="nbest=6"):
        BeamSearch(BeamConfig(beam_size=5), nbest=6)
    with pytest.raises(UsageError, match="nbest=2"):
        GreedySearch(GreedyConfig(), nbest=2)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beam_size": 0}, "beam_size=0"),
        ({"min_len": -1}, "min_len=-1"),
        ({"lenpen": -0.5}, "lenpen=-0.5"),
        ({"lenpen": float("nan")}, "lenpen=nan"),
        ({"lenpen": float("inf")}, "lenpen=inf"),
        ({"max_len_a": float("nan")}, "max_len_a=nan"),
        ({"max_len_b": float("inf")}, "max_len_b=inf"),
        ({"max_len_a": -0.5}, "max_len_a=-0.5"),
        ({"max_len_a": 0, "max_len_b": 2, "min_len": 3}, "max_len_b=2"),
    ],
)
def test_impossible_options_are_refused_by_name(options, named):
    with pytest.raises(UsageError, match=named):
        BeamConfig(**options)


@pytest.mark.parametrize("options", [{"max_len_a": -1.0}, {"max_len_b": float("nan")}, {"min_len": -1}])
def test_greedy_search_refuses_the_same_lengths(options):
    with pytest.raises(UsageError, match=f"{next(iter(options))}="):
        GreedyConfig(**options)
