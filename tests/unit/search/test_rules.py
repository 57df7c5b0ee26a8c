"""What a translation must not, and must begin to, contain: against slow searches written from the definition."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import UsageError
from nmt.interface import Hypothesis
from nmt.search import Search
from nmt.search.beam import BeamSearch
from nmt.search.config import BeamConfig, CommonSearchConfig, GreedyConfig, SamplingConfig
from nmt.search.constraints import clash, fits
from nmt.search.greedy import GreedySearch
from nmt.search.requests import Request
from nmt.search.sampling import SamplingSearch
from nmt.testing.subjects import ensemble_of, search_with
from tests.unit.search.test_search import assert_same, beam_search, padded, some_models, some_settings
from tests.unit.search.toy import EOS, UNK, Settings, SlowEnsemble, ToyModel, Wish, slow_beam, slow_greedy

pieces = st.sampled_from([1, 4])  # that every toy vocabulary has
phrases = st.lists(pieces, min_size=1, max_size=3).map(tuple)
some_rules = st.fixed_dictionaries(
    {
        "ngram": st.sampled_from([0, 0, 1, 2, 3]),
        "repetition": st.sampled_from([1.0, 1.0, 0.7, 1.5]),
        "forbid_unknown": st.booleans(),
    }
)
own_lengths = st.sampled_from([(None, None)] * 3 + [(1, None), (5, None), (None, 1), (None, 3), (2, 2), (1, 4), (4, 8)])
some_wishes = st.builds(
    lambda prefix, exclude, lengths: Wish(prefix, exclude, *lengths),
    prefix=st.lists(pieces, max_size=5).map(tuple),
    exclude=st.lists(phrases, max_size=2).map(tuple),
    lengths=own_lengths,
)
sentences = st.lists(
    st.tuples(st.lists(st.integers(1, 4), max_size=5).map(lambda ids: (*ids, EOS)), some_wishes), min_size=1, max_size=4
)


def requests(wishes: Sequence[Wish]) -> list[Request]:
    return [
        Request(wish.prefix, exclude=wish.exclude, min_length=wish.min_length, max_length=wish.max_length)
        for wish in wishes
    ]


@pytest.mark.slow
@given(model=some_models, asked=sentences, options=some_settings, rules=some_rules, data=st.data())
def test_beam_search_under_rules_equals_the_slow_one(model, asked, options, rules, data):
    options = dataclasses.replace(options, nbest=data.draw(st.integers(1, options.beam)), **rules)
    sources, wishes = zip(*asked)
    found = search_with(beam_search(options), model, *padded(sources), requests=requests(wishes))
    for hypotheses, source, wish in zip(found, sources, wishes):
        assert_same(hypotheses, slow_beam(model, source, options, wish))


@given(model=some_models, asked=sentences, options=some_settings, rules=some_rules)
def test_greedy_search_under_rules_equals_the_slow_one(model, asked, options, rules):
    options = dataclasses.replace(options, **rules)
    config = GreedyConfig(
        options.a, options.b, options.min_len, options.ngram, options.repetition, options.forbid_unknown
    )
    sources, wishes = zip(*asked)
    found = search_with(GreedySearch(config), model, *padded(sources), requests=requests(wishes))
    for hypotheses, source, wish in zip(found, sources, wishes):
        assert_same(hypotheses, [slow_greedy(model, source, options, wish)])


@given(seed=st.integers(0, 10**6), asked=sentences, options=some_settings, rules=some_rules)
def test_rules_mean_the_same_for_an_ensemble(seed, asked, options, rules):
    options = dataclasses.replace(options, **rules)
    models = [ToyModel(seed), ToyModel(seed + 1)]
    sources, wishes = zip(*asked)
    found = search_with(beam_search(options), ensemble_of(models), *padded(sources), requests=requests(wishes))
    for hypotheses, source, wish in zip(found, sources, wishes):
        assert_same(hypotheses, slow_beam(SlowEnsemble(models), source, options, wish))


def repeats(tokens: Sequence[int], n: int) -> bool:
    grams = [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]
    return len(set(grams)) < len(grams)


def contains(tokens: Sequence[int], phrase: tuple[int, ...]) -> bool:
    return any(tuple(tokens[start : start + len(phrase)]) == phrase for start in range(len(tokens)))


@given(
    seed=st.integers(0, 10**6),
    asked=sentences,
    n=st.sampled_from([0, 1, 2]),
    forbid=st.booleans(),
    nbest=st.integers(1, 3),
)
def test_samples_keep_the_rules(seed, asked, n, forbid, nbest):
    sources, wishes = zip(*asked)
    config = SamplingConfig(max_len_b=20, no_repeat_ngram=n, forbid_unknown=forbid)
    found = search_with(SamplingSearch(config, nbest), ToyModel(seed), *padded(sources), requests=requests(wishes))
    for hypotheses, wish in zip(found, wishes):
        assert len(hypotheses) == nbest
        for hypothesis in hypotheses:
            *tokens, last = hypothesis.tokens.tolist()
            assert last == EOS and tuple(tokens[: len(wish.prefix)]) == wish.prefix
            drawn = tokens[len(wish.prefix) :]
            assert not (forbid and UNK in drawn)
            assert not (n and repeats(drawn, n))
            assert not any(contains(drawn, phrase) for phrase in wish.exclude)


@given(
    seed=st.integers(0, 10**6),
    eos_bias=st.sampled_from([-3.0, 0.0, 3.0]),
    lengths=st.lists(own_lengths, min_size=1, max_size=4),
    min_len=st.integers(0, 3),
)
def test_samples_are_as_long_as_each_sentence_asks_whatever_the_others_ask(seed, eos_bias, lengths, min_len):
    model, search = ToyModel(seed, eos_bias=eos_bias), SamplingSearch(SamplingConfig(max_len_b=6, min_len=min_len), 3)
    sources = [(4, 5, *[6] * number, EOS) for number in range(len(lengths))]
    asked = [Request(min_length=shortest, max_length=longest) for shortest, longest in lengths]
    found = search_with(search, model, *padded(sources), requests=asked)
    for hypotheses, source, request in zip(found, sources, asked):
        (alone,) = search_with(search, model, *padded([source]), requests=[request])
        assert tokens_of(hypotheses) == tokens_of(alone)
        longest = request.max_length or max(len(source) - 1 + 6, request.min_length or 0)
        shortest = min(request.min_length or min_len, longest)
        for hypothesis in hypotheses:
            pieces = len(hypothesis.tokens) - 1
            assert shortest <= pieces <= longest and hypothesis.finished == (pieces < longest)


def test_without_rules_and_requests_nothing_changes():
    model, rows = ToyModel(3), padded([(4, 5, EOS), (6, EOS)])
    plain = search_with(beam_search(Settings()), model, *rows)
    asked = search_with(beam_search(Settings()), model, *rows, requests=[Request(), Request()])
    assert [[one.tokens.tolist() for one in found] for found in plain] == [
        [one.tokens.tolist() for one in found] for found in asked
    ]


def test_with_a_repetition_penalty_log_probabilities_remain_the_models():
    options = Settings(repetition=3.0, b=6)
    (found,) = search_with(beam_search(options), ToyModel(5), *padded([(4, 5, 6, EOS)]))
    for hypothesis in found:
        assert hypothesis.log_probability == pytest.approx(float(hypothesis.token_scores.sum()), abs=1e-5)


def test_a_request_of_one_sentence_leaves_its_batch_mates_alone():
    model, sources = ToyModel(7), [(4, 5, EOS), (6, 4, EOS), (5, EOS)]
    asked = [Request(), Request(prefix=(4, 4, 5), exclude=((6,),)), Request()]
    plain = search_with(beam_search(Settings()), model, *padded(sources))
    found = search_with(beam_search(Settings()), model, *padded(sources), requests=asked)
    texts = [[tokens_of(one) for one in results] for results in (plain, found)]
    assert texts[0][0] == texts[1][0] and texts[0][2] == texts[1][2] and texts[0][1] != texts[1][1]


def tokens_of(hypotheses: Sequence[Hypothesis]) -> list[list[int]]:
    return [hypothesis.tokens.tolist() for hypothesis in hypotheses]


@pytest.mark.parametrize("search", [GreedySearch(GreedyConfig()), SamplingSearch(SamplingConfig())])
def test_only_the_beam_can_be_asked_for_a_phrase(search: Search):
    with pytest.raises(UsageError, match="does not support required phrases; use --search beam"):
        search_with(search, ToyModel(1), *padded([(4, EOS)]), requests=[Request(include=((4,),))])


@pytest.mark.parametrize("config_class", [BeamConfig, GreedyConfig, SamplingConfig])
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"no_repeat_ngram": -1}, "search.no_repeat_ngram=-1"),
        ({"repetition_penalty": 0.0}, "search.repetition_penalty=0.0"),
    ],
)
def test_impossible_rules_are_refused(
    config_class: type[CommonSearchConfig], options: dict[str, float], complaint: str
):
    with pytest.raises(UsageError, match=complaint):
        config_class(**options)


def test_patience_must_be_positive():
    with pytest.raises(UsageError, match="search.patience=0"):
        BeamConfig(patience=0)


def test_patience_waits_for_more_finished_hypotheses():
    """With a strong penalty for the short, a later hypothesis wins that an impatient search never sees."""
    better = 0
    for seed in range(60):
        options = Settings(beam=2, gnmt=False, alpha=2.0, a=0, b=8)
        rows = padded([(4, 5, EOS)])
        (first,), (patient,) = (
            search_with(
                beam_search(dataclasses.replace(options, patience=patience)), ToyModel(seed, eos_bias=1.0), *rows
            )
            for patience in (1.0, 3.0)
        )
        assert patient[0].score >= first[0].score - 1e-5
        better += patient[0].score > first[0].score + 1e-5
    assert better > 5


def test_a_beam_is_needed_for_many_finished_hypotheses():
    with pytest.raises(UsageError, match="nbest=4 is more than search.beam_size=3"):
        BeamSearch(BeamConfig(beam_size=3, patience=2.0), nbest=4)


def windows(text: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(text[at : at + size]) for at in range(len(text) - size + 1)]


@pytest.mark.parametrize("n", [1, 2])
def test_no_text_without_a_repeated_n_gram_has_phrases_that_clash(n: int) -> None:
    """Of all texts of up to six of three letters."""
    texts = [text for length in range(7) for text in itertools.product("abc", repeat=length)]
    good = [text for text in texts if len(set(windows(text, n))) == len(windows(text, n))]
    few = [phrase for length in (1, 2, 3) for phrase in itertools.product("ab", repeat=length)]
    found = 0
    for one, other in itertools.product(few, few):
        if clash(one, other, n):
            found += 1
            assert not any(one in windows(text, len(one)) and other in windows(text, len(other)) for text in good)
    assert found > 1


@pytest.mark.parametrize("n", [1, 2])
def test_no_text_repeats_no_n_gram_after_a_prefix_that_a_phrase_does_not_fit(n: int) -> None:
    """Of all texts of up to six of three letters; the prefix itself may repeat what it likes."""
    few = [phrase for length in (1, 2, 3) for phrase in itertools.product("ab", repeat=length)]
    found = 0
    for prefix in few:
        rest = [end for length in range(7 - len(prefix)) for end in itertools.product("abc", repeat=length)]
        texts = [windows((*prefix, *end), n) for end in rest]
        inside = max(0, len(prefix) - n + 1)  # n-grams that the rule does not see
        good = [
            (*prefix, *end)
            for end, grams in zip(rest, texts)
            if all(gram not in grams[:place] for place, gram in enumerate(grams) if place >= inside)
        ]
        for phrase in few:
            if not fits(phrase, prefix, n):
                found += 1
                assert not any(phrase in windows(text, len(phrase)) for text in good)
    assert found > 1


def test_a_phrase_may_lie_within_a_prefix_or_over_its_end() -> None:
    assert fits((2, 3), (1, 2, 3, 1, 2), 2) and fits((1, 2, 3), (1, 2, 1, 2), 2) and fits((7, 8), (1, 2), 1)
    assert not fits((1, 2, 4), (1, 2, 3), 2) and not fits((4, 1), (1, 2), 1)


def test_phrases_that_overlap_do_not_clash() -> None:
    assert not clash((1, 2, 3), (2, 3, 4), 2) and not clash((1, 2, 3), (2, 3), 1) and not clash((1, 1), (1, 1), 3)
    assert clash((1, 2, 3), (4, 2, 3), 2) and clash((1, 2, 1, 2), (1, 2, 1, 2), 2)
