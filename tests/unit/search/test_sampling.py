"""Sampling against the distribution computed from the definition, prefix by prefix."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.commands import GenerateConfig
from nmt.config.option import flags_of
from nmt.errors import DataError, UsageError
from nmt.interface import Hypothesis
from nmt.search import searches
from nmt.search.config import GreedyConfig, SamplingConfig
from nmt.search.greedy import GreedySearch
from nmt.search.requests import Sentences
from nmt.search.sampling import SamplingSearch
from nmt.testing.subjects import engine_of, ensemble_of, forced_scores, search_with
from tests.unit.search.toy import BOS, EOS, PAD, Settings, SlowEnsemble, ToyModel, Wish, ranked_by

SHORT = SamplingConfig(max_len_a=0.0, max_len_b=2)
SOURCE = (4, 1, EOS)
sources = st.lists(st.lists(st.integers(1, 4), max_size=5).map(lambda ids: (*ids, EOS)), min_size=1, max_size=5)
configs = st.builds(
    SamplingConfig,
    max_len_a=st.sampled_from([0.0, 1.0]),
    max_len_b=st.sampled_from([3, 6]),
    min_len=st.integers(0, 3),
    temperature=st.sampled_from([0.5, 1.0, 3.0]),
    topk=st.sampled_from([None, 1, 3, 1000]),
    topp=st.sampled_from([None, 0.1, 0.8, 1.0]),
    seed=st.integers(0, 2**40),
)
short_configs = st.builds(
    replace,
    st.just(SHORT),
    min_len=st.integers(0, 2),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    topk=st.sampled_from([None, None, 1, 3, 1000]),
    topp=st.sampled_from([None, None, 0.3, 0.8, 1.0]),
    minp=st.sampled_from([0.0, 0.0, 0.1, 0.5]),
    epsilon=st.sampled_from([0.0, 0.0, 0.02, 0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 0.7, 3.0]),
    no_repeat_ngram=st.sampled_from([0, 0, 1]),
    forbid_unknown=st.booleans(),
    seed=st.integers(0, 2**40),
)
short_models = st.builds(
    ToyModel,
    seed=st.integers(0, 10**6),
    vocabulary=st.sampled_from([5, 7, 20, 90]),
    eos_bias=st.sampled_from([-2.0, 0.0, 3.0]),
)
models = st.builds(
    ToyModel,
    seed=st.integers(0, 10**6),
    vocabulary=st.sampled_from([5, 8, 64, 70, 300]),
    eos_bias=st.sampled_from([-2.0, 0.0, 3.0]),
    limit=st.sampled_from([None, 2, 5]),
)


def padded(rows: list[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    return torch.tensor([[*row, *([PAD] * (int(lengths.max()) - len(row)))] for row in rows]), lengths


def ids(hypotheses: list[Hypothesis]) -> list[tuple[int, ...]]:
    return [tuple(hypothesis.tokens.tolist()) for hypothesis in hypotheses]


def next_token(model: ToyModel | SlowEnsemble, prefix: tuple[int, ...], config: SamplingConfig) -> np.ndarray:
    """The probabilities of the next token, from the definition of each option; the limit is two pieces and eos."""
    if len(prefix) == 2:
        return np.eye(model.vocabulary)[EOS]
    rules = Settings(
        ngram=config.no_repeat_ngram, repetition=config.repetition_penalty, forbid_unknown=config.forbid_unknown
    )
    tempered = np.exp(ranked_by(model, SOURCE, prefix, rules, Wish()) / config.temperature)
    tempered[[PAD, BOS]] = 0.0
    if len(prefix) < config.min_len:
        tempered[EOS] = 0.0
    if not tempered.any():
        return np.eye(model.vocabulary)[EOS]
    ranked = list(np.argsort(-tempered))
    if config.topk is not None:
        tempered[ranked[config.topk :]] = 0.0
    tempered /= tempered.sum()
    if config.topp is not None:
        total = 0.0
        for token in ranked:
            if total >= config.topp:
                tempered[token] = 0.0
            total += tempered[token]
        tempered /= tempered.sum()
    if config.minp:
        tempered[tempered < config.minp * tempered.max()] = 0.0
        tempered /= tempered.sum()
    if config.epsilon:
        tempered[tempered < min(config.epsilon, tempered.max())] = 0.0
    return tempered / tempered.sum()


def distribution(model: ToyModel | SlowEnsemble, config: SamplingConfig) -> dict[tuple[int, ...], float]:
    """The probability of every translation of at most two pieces."""
    found, following = {}, functools.cache(lambda prefix: next_token(model, prefix, config))
    for length in range(3):
        for prefix in itertools.product([1, *range(4, model.vocabulary)], repeat=length):
            tokens = (*prefix, EOS)
            steps = [following(tokens[:t])[tokens[t]] for t in range(len(tokens))]
            found[tokens] = float(np.prod(steps))
    assert sum(found.values()) == pytest.approx(1.0)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_len": 0},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"topk": 3},
        {"topp": 0.95},
        {"topk": 4, "topp": 0.8, "temperature": 1.5},
        {"topp": 1.0, "topk": 100},
        {"minp": 0.1},
        {"epsilon": 0.02},
        {"epsilon": 0.05},
        {"topk": 5, "topp": 0.9, "minp": 0.2, "epsilon": 0.15, "temperature": 1.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("vocabulary", [7, 90])
def test_samples_are_distributed_as_defined(vocabulary: int, options: dict[str, Any]) -> None:
    config = replace(SHORT, **options)
    assert assert_distributed(ToyModel(3, vocabulary), config) >= 3


@settings(max_examples=25)  # by night too: each one draws 6,000 samples, and frequencies are compared
@given(model=short_models, config=short_configs)
@pytest.mark.slow
def test_samples_of_any_model_are_distributed_as_defined(model, config):
    assert assert_distributed(model, config) >= 1


def assert_distributed(model: ToyModel, config: SamplingConfig, count: int = 6000) -> int:
    """Of how many translations the frequency was compared."""
    draws = SamplingSearch(config, count).draw(engine_of(model), Sentences([np.array(SOURCE)]))
    found = Counter(tuple(row[:length]) for row, length in zip(draws.tokens[0].tolist(), draws.lengths[0].tolist()))
    expected = distribution(model, config)
    assert all(expected[tokens] > 0.0 for tokens in found), "a translation that is impossible"
    likely = [tokens for tokens, probability in expected.items() if probability * count > 10]
    for tokens in likely:
        mean = expected[tokens] * count
        assert abs(found[tokens] - mean) <= 5 * (mean * (1 - expected[tokens])) ** 0.5 + 1e-6, tokens
    return len(likely)


def test_an_ensemble_draws_from_the_mean_of_probabilities() -> None:
    members, count = [ToyModel(3, 6), ToyModel(4, 6)], 6000
    found = Counter(ids(search_with(SamplingSearch(SHORT, count), ensemble_of(members), *padded([SOURCE]))[0]))
    expected = distribution(SlowEnsemble(members), SHORT)
    for tokens, probability in expected.items():
        assert abs(found[tokens] - probability * count) < 5 * (probability * count) ** 0.5 + 2


@given(model=models, rows=sources, config=configs, count=st.integers(1, 4))
def test_scores_are_the_models_own_log_probabilities(model, rows, config, count):
    search = SamplingSearch(config, count)
    for hypotheses, source in zip(search_with(search, model, *padded(rows)), rows):
        for one in hypotheses:
            tokens = tuple(one.tokens.tolist())
            expected = [model.log_probabilities(source, tokens[:t])[token] for t, token in enumerate(tokens)]
            np.testing.assert_allclose(one.token_scores, expected, atol=1e-4)
            assert one.score == one.log_probability == pytest.approx(sum(expected), abs=1e-3)


@given(model=models, rows=sources, config=configs, count=st.integers(1, 4), data=st.data())
def test_samples_do_not_depend_on_batch_mates_or_their_order(model, rows, config, count, data):
    search = SamplingSearch(config, count)
    order = data.draw(st.permutations(range(len(rows))))
    together = search_with(search, model, *padded([rows[index] for index in order]))
    for hypotheses, index in zip(together, order):
        assert ids(hypotheses) == ids(search_with(search, model, *padded([rows[index]]))[0])


@given(model=models, rows=sources, config=configs, count=st.integers(1, 4))
def test_every_sample_is_a_translation_within_the_limits(model, rows, config, count):
    for hypotheses, source in zip(search_with(SamplingSearch(config, count), model, *padded(rows)), rows):
        limit = int(config.max_len_a * (len(source) - 1) + config.max_len_b) + 1
        limit = limit if model.limit is None else min(limit, model.limit)
        assert len(hypotheses) == count
        assert [one.score for one in hypotheses] == sorted((one.score for one in hypotheses), reverse=True)
        for tokens, one in zip(ids(hypotheses), hypotheses):
            assert tokens[-1] == EOS and not {PAD, BOS, EOS} & set(tokens[:-1])
            assert min(config.min_len, limit - 1) < len(tokens) <= limit
            assert one.finished == (len(tokens) < limit)


@given(model=models, rows=sources, option=st.sampled_from([{"topk": 1}, {"topp": 1e-6}, {"temperature": 1e-6}]))
def test_with_no_room_for_chance_sampling_is_greedy(model, rows, option):
    greedy = search_with(GreedySearch(GreedyConfig()), model, *padded(rows))
    sampled = search_with(SamplingSearch(SamplingConfig(**option), 2), model, *padded(rows))
    for (expected,), found in zip(greedy, sampled):
        assert ids(found) == ids([expected, expected])


def test_another_seed_and_another_number_draw_another_translation() -> None:
    model, config = ToyModel(1, vocabulary=60, eos_bias=-2.0), SamplingConfig(max_len_b=9)
    found = [
        tokens
        for seed in (1, 2, 3)
        for tokens in ids(search_with(SamplingSearch(replace(config, seed=seed), 4), model, *padded([SOURCE]))[0])
    ]
    assert len(set(found)) == 12


def test_more_samples_leave_the_first_ones_as_they_were() -> None:
    model = ToyModel(1, vocabulary=60)
    few = SamplingSearch(SamplingConfig(), 2).draw(engine_of(model), Sentences([np.array(SOURCE)]))
    many = SamplingSearch(SamplingConfig(), 7).draw(engine_of(model), Sentences([np.array(SOURCE)]))
    for number in range(2):
        length = int(few.lengths[0, number])
        assert length == many.lengths[0, number]
        assert np.array_equal(few.tokens[0, number, :length], many.tokens[0, number, :length])


def test_the_generators_of_torch_are_neither_read_nor_moved() -> None:
    model = ToyModel(1, vocabulary=60)
    torch.manual_seed(1)
    first = ids(search_with(SamplingSearch(SamplingConfig(), 3), model, *padded([SOURCE]))[0])
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)
    assert ids(search_with(SamplingSearch(SamplingConfig(), 3), model, *padded([SOURCE]))[0]) == first


def test_forced_scoring_equals_the_scores_of_samples() -> None:
    model, rows = ToyModel(5), padded([SOURCE, (4, 4, 4, EOS)])
    found = [
        hypotheses[0] for hypotheses in search_with(SamplingSearch(SamplingConfig(temperature=2.0), 1), model, *rows)
    ]
    for one, scores in zip(found, forced_scores(model, *rows, [torch.from_numpy(one.tokens) for one in found])):
        torch.testing.assert_close(torch.from_numpy(one.token_scores), scores)


def test_attention_is_that_of_the_model_at_each_step() -> None:
    model, rows = ToyModel(5), [(4, 1, 1, EOS), (4, EOS)]
    for hypotheses, source in zip(
        search_with(SamplingSearch(SamplingConfig(), 3), model, *padded(rows), attention=True), rows
    ):
        for one in hypotheses:
            tokens = tuple(one.tokens.tolist())
            expected = np.stack([model.attention(source, tokens[:t]) for t in range(len(tokens))])
            assert one.attention is not None
            np.testing.assert_allclose(one.attention, expected, atol=1e-5)


def test_a_model_without_scores_is_a_data_error() -> None:
    model = ToyModel(1, vocabulary=70)
    model.output[:] = float("nan")
    for options in ({}, {"topk": 3}, {"topp": 0.5}):
        with pytest.raises(DataError, match="scores are NaN: its checkpoint is damaged"):
            search_with(SamplingSearch(SamplingConfig(**options), 2), model, *padded([SOURCE]))


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 1e-40},
        {"topk": 0},
        {"topk": -1},
        {"topp": 0.0},
        {"topp": 1.5},
        {"topp": float("nan")},
        {"min_len": -1},
        {"minp": 1.5},
        {"minp": -0.1},
        {"epsilon": -1.0},
        {"epsilon": float("nan")},
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any]) -> None:
    name, value = next(iter(options.items()))
    with pytest.raises(UsageError, match=rf"search\.{name}={value}"):
        SamplingConfig(**options)


def test_the_options_have_the_flags_that_fairseq_gives_them() -> None:
    keys = {flag.name: flag.key for flag in flags_of(GenerateConfig)}
    assert keys["--sampling-topk"] == "search.topk" and keys["--sampling-topp"] == "search.topp"
    assert keys["--temperature"] == "search.temperature" and keys["--sampling-seed"] == "search.seed"
    assert isinstance(searches.build(SamplingConfig(), nbest=3), SamplingSearch)


@pytest.mark.parametrize("options", [{"topk": 1}, {"topp": 0.01}], ids=str)
def test_tokens_that_tie_with_the_last_one_kept_are_kept_too(options: dict[str, Any]) -> None:
    model = ToyModel(1, vocabulary=9)
    model.output[:], model.position_table[:] = 0.0, 0.0
    draws = SamplingSearch(replace(SHORT, **options), 500).draw(engine_of(model), Sentences([np.array(SOURCE)]))
    assert set(draws.tokens[0, :, 0].tolist()) == {1, *range(4, 9)}


@pytest.mark.parametrize("options", [{"minp": 1.0}, {"epsilon": 0.99}], ids=str)
def test_what_leaves_one_token_is_greedy(options: dict[str, Any]) -> None:
    """Also where the likeliest is less probable than epsilon."""
    model, rows = ToyModel(3, 90), padded([SOURCE])
    (drawn,) = search_with(SamplingSearch(replace(SHORT, **options), 3), model, *rows)
    limits = {name: getattr(SHORT, name) for name in ("min_len", "max_len_a", "max_len_b")}
    ((expected,),) = search_with(GreedySearch(GreedyConfig(**limits)), model, *rows)
    assert ids(drawn) == ids([expected]) * 3
