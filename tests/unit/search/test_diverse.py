"""Diverse beam search against a slow one written from the definition."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import UsageError
from nmt.search.beam import DiverseBeamSearch
from nmt.search.config import DiverseBeamConfig
from nmt.search.requests import Request
from nmt.testing.subjects import search_with
from tests.unit.search.test_rules import requests, sentences, some_rules
from tests.unit.search.test_search import assert_same, beam_options, beam_search, padded, some_models, some_settings
from tests.unit.search.toy import EOS, Settings, ToyModel, slow_diverse


def diverse_search(options: Settings, groups: int, strength: float) -> DiverseBeamSearch:
    config = DiverseBeamConfig(**beam_options(options), groups=groups, strength=strength)
    return DiverseBeamSearch(config, options.nbest)


@pytest.mark.slow
@given(
    model=some_models,
    asked=sentences,
    options=some_settings,
    rules=some_rules,
    groups=st.integers(1, 3),
    width=st.integers(1, 3),
    strength=st.sampled_from([0.0, 0.5, 3.0]),
    data=st.data(),
)
def test_diverse_search_equals_the_slow_one(model, asked, options, rules, groups, width, strength, data):
    options = dataclasses.replace(options, beam=groups * width, **rules)
    options = dataclasses.replace(options, nbest=data.draw(st.integers(1, options.beam)))
    sources, wishes = zip(*asked)
    found = search_with(diverse_search(options, groups, strength), model, *padded(sources), requests=requests(wishes))
    for hypotheses, source, wish in zip(found, sources, wishes):
        assert_same(hypotheses, slow_diverse(model, source, options, groups, strength, wish))


@given(model=some_models, asked=sentences, options=some_settings)
def test_one_group_is_beam_search(model, asked, options):
    rows = padded([source for source, _ in asked])
    one, other = (
        search_with(diverse_search(options, 1, 2.0), model, *rows),
        search_with(beam_search(options), model, *rows),
    )
    for found, expected in zip(one, other):
        assert [hypothesis.tokens.tolist() for hypothesis in found] == [
            hypothesis.tokens.tolist() for hypothesis in expected
        ]


def test_groups_find_different_translations() -> None:
    model, rows = ToyModel(11, vocabulary=70), padded([(4, 5, EOS)])
    options = Settings(beam=4, nbest=4, b=8)
    first_tokens = [
        {int(one.tokens[0]) for one in search_with(diverse_search(options, 4, strength), model, *rows)[0]}
        for strength in (0.0, 100.0)
    ]
    assert len(first_tokens[0]) == 1 and len(first_tokens[1]) == 4


def test_attention_comes_with_every_hypothesis() -> None:
    rows = padded([(4, 5, EOS), (4, EOS)])
    found = search_with(diverse_search(Settings(beam=4, nbest=3), 2, 1.0), ToyModel(3), *rows, attention=True)
    for hypotheses, width in zip(found, (3, 2)):
        for hypothesis in hypotheses:
            assert hypothesis.attention is not None and hypothesis.attention.shape == (len(hypothesis.tokens), width)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"beam_size": 5, "groups": 2}, "5 is not divisible by search.groups=2.*--beam 6"),
        ({"groups": 0}, "search.groups=0"),
        ({"strength": -1.0}, "search.strength=-1.0"),
        ({"coverage_penalty": 0.2}, "omit --coverage-penalty"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, float], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        DiverseBeamConfig(**options)  # type: ignore[arg-type]


def test_more_translations_than_slots_are_refused_and_so_are_phrases() -> None:
    with pytest.raises(UsageError, match="nbest=6 is more than search.beam_size=5"):
        DiverseBeamSearch(DiverseBeamConfig(), nbest=6)
    with pytest.raises(UsageError, match="does not support required phrases"):
        search_with(
            DiverseBeamSearch(DiverseBeamConfig()),
            ToyModel(1),
            *padded([(4, EOS)]),
            requests=[Request(include=((4,),))],
        )
