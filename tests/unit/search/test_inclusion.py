"""Translations that must contain phrases: always kept, and the best of all where the beam is wide enough."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.search.beam import BeamSearch
from nmt.search.config import BeamConfig
from nmt.search.inclusion import Phrases
from nmt.search.inclusion import _allocate as allocate
from nmt.search.inclusion import _Continuation as Continuation
from nmt.search.inclusion import _two_beams as two_beams
from nmt.search.requests import Request
from nmt.testing.subjects import search_with
from tests.unit.search.test_rules import contains, repeats
from tests.unit.search.test_search import assert_same, beam_search, padded, some_settings
from tests.unit.search.toy import EOS, Settings, ToyModel, exhaustive, occurrences, slow_including

phrases = st.lists(st.sampled_from([1, 4, 5]), min_size=1, max_size=3).map(tuple)
some_phrases = st.lists(phrases, max_size=3).map(tuple)


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.sampled_from([8, 70]),
    eos_bias=st.sampled_from([-2.0, 0.0, 3.0]),
    wanted=st.lists(some_phrases, min_size=1, max_size=3),
    beam=st.integers(1, 6),
    stop=st.sampled_from(["first", "bound", "estimate", "all", "shrink"]),
)
def test_translations_contain_every_phrase_as_often_as_wanted(seed, vocabulary, eos_bias, wanted, beam, stop):
    model, sources = ToyModel(seed, vocabulary, eos_bias), [(4, 5, EOS), (5, EOS), (6, 6, 4, EOS)][: len(wanted)]
    options = Settings(beam=beam, a=0, b=30, stop=stop)
    found = search_with(
        beam_search(options), model, *padded(sources), requests=[Request(include=phrases) for phrases in wanted]
    )
    for (hypothesis,), asked in zip(found, wanted):
        tokens = hypothesis.tokens.tolist()
        assert all(occurrences(tokens, phrase) >= count for phrase, count in Counter(asked).items())


@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.sampled_from([8, 70]),
    eos_bias=st.sampled_from([-2.0, 0.0, 3.0]),
    wanted=st.lists(st.lists(phrases, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3),
    options=some_settings,
    data=st.data(),
)
def test_what_is_found_is_what_a_slow_search_with_the_phrases_finds(seed, vocabulary, eos_bias, wanted, options, data):
    model, sources = ToyModel(seed, vocabulary, eos_bias), [(4, 5, EOS), (5, EOS), (6, 6, 4, EOS)][: len(wanted)]
    options = dataclasses.replace(options, b=options.b + 3, nbest=data.draw(st.integers(1, options.beam)))
    found = search_with(
        beam_search(options), model, *padded(sources), requests=[Request(include=phrases) for phrases in wanted]
    )
    for hypotheses, source, asked in zip(found, sources, wanted):
        assert_same(hypotheses, slow_including(model, source, options, asked))


@given(seed=st.integers(0, 10**6), asked=some_phrases, alpha=st.sampled_from([0.0, 1.0]))
def test_a_wide_beam_finds_the_best_translation_that_contains_the_phrases(seed, asked, alpha):
    model, source = ToyModel(seed, vocabulary=6), (4, 5, EOS)
    options = Settings(beam=400, gnmt=False, alpha=alpha, a=0, b=4, stop="all")
    expected = [
        one
        for one in exhaustive(model, source, options)
        if all(occurrences(list(one.tokens), phrase) >= count for phrase, count in Counter(asked).items())
    ]
    ((hypothesis,),) = search_with(beam_search(options), model, *padded([source]), requests=[Request(include=asked)])
    if expected:
        assert hypothesis.score == pytest.approx(expected[0].score, abs=1e-4)
    else:
        assert not hypothesis.finished, "no translation of this length contains them"


@given(seed=st.integers(0, 10**6), sources=st.lists(st.just((4, 4, EOS)), min_size=2, max_size=3), asked=some_phrases)
def test_batch_mates_never_matter(seed, sources, asked):
    model = ToyModel(seed)
    options = Settings(beam=4, b=8)
    wishes = [Request(include=asked), *[Request()] * (len(sources) - 1)]
    together = search_with(beam_search(options), model, *padded(sources), requests=wishes)
    for index, wish in enumerate(wishes):
        alone = search_with(beam_search(options), model, *padded([sources[index]]), requests=[wish])[0]
        assert [one.tokens.tolist() for one in together[index]] == [one.tokens.tolist() for one in alone]


@given(seed=st.integers(0, 10**6), asked=st.lists(phrases, min_size=1, max_size=2, unique=True).map(tuple))
def test_phrases_go_together_with_a_prefix_and_with_rules(seed, asked):
    options = Settings(beam=6, b=20, ngram=4)
    wish = Request(prefix=(6, 7), include=asked, exclude=((7, 6),))
    ((hypothesis,),) = search_with(beam_search(options), ToyModel(seed), *padded([(4, 5, EOS)]), requests=[wish])
    tokens = hypothesis.tokens.tolist()
    assert tokens[:2] == [6, 7] and not contains(tokens, (7, 6)) and not repeats(tokens, 4)
    assert all(contains(tokens, phrase) for phrase in asked) or not hypothesis.finished


@given(seed=st.integers(0, 10**6), eos_bias=st.sampled_from([-3.0, 0.0, 3.0]), asked=phrases)
def test_phrases_go_together_with_a_sentences_own_lengths(seed, eos_bias, asked):
    wishes = [Request(include=(asked,), min_length=7, max_length=9), Request(min_length=2), Request(include=(asked,))]
    rows = padded([(4, 5, EOS), (6, EOS), (5, EOS)])
    (found, *_), *_ = search_with(
        beam_search(Settings(beam=6, b=6)), ToyModel(seed, eos_bias=eos_bias), *rows, requests=wishes
    )
    assert 7 <= len(found.tokens) - 1 <= 9 and contains(found.tokens.tolist(), asked)


@pytest.mark.parametrize(
    ("slots", "banks", "kept"),
    [
        (6, [0, 1, 2], [0, 0, 1, 1, 2, 2]),  # equal shares
        (5, [0, 3], [0, 0, 3, 3, 3]),  # only of those that there are; the fullest has what is left over
        (3, [0, 1, 2, 3], [1, 2, 3]),  # the fullest first where there are too many
        (2, [5], [5, 5]),
    ],
)
def test_slots_are_shared_out_among_the_banks_that_there_are(slots: int, banks: list[int], kept: list[int]) -> None:
    options = [Continuation(float(bank + parent), parent, 4, bank) for bank in banks for parent in range(5)]
    options.sort()
    chosen = allocate(options, slots)
    assert sorted(option.bank for option in chosen) == kept
    assert [option.cost for option in chosen] == sorted(option.cost for option in chosen)
    for bank in banks:  # of each bank the best
        parents = [option.parent for option in chosen if option.bank == bank]
        assert sorted(parents) == [*range(len(parents))]


def test_where_the_limit_leaves_no_room_the_translation_is_marked() -> None:
    options = Settings(beam=3, a=0, b=2)
    asked = [Request(include=((4, 5, 6, 7),))]
    ((hypothesis,),) = search_with(beam_search(options), ToyModel(1), *padded([(4, EOS)]), requests=asked)
    assert not hypothesis.finished and len(hypothesis.tokens) == 3


@given(asked=st.lists(phrases, min_size=1, max_size=3), tokens=st.lists(st.sampled_from([1, 4, 5, 6]), max_size=12))
def test_progress_counts_what_a_look_at_all_tokens_counts(asked, tokens):
    """Phrases may overlap, begin alike and contain each other."""
    wanted = Phrases(asked)
    progress = wanted.start()
    for token in tokens:
        progress = wanted.advance(progress, token)
    assert list(progress.occurrences) == [occurrences(tokens, phrase) for phrase in wanted.phrases]
    complete = all(occurrences(tokens, phrase) >= count for phrase, count in Counter(asked).items())
    assert wanted.complete(progress) == complete
    assert (wanted.bank(progress) >= wanted.bank_of_all) == complete or not complete
    for token in wanted.next_tokens(progress):
        assert wanted.bank(wanted.advance(progress, token)) > 0
    assert bool(wanted.next_tokens(progress)) != complete


def test_attention_and_nbest_come_with_phrases() -> None:
    options = dataclasses.replace(Settings(beam=5, b=20), nbest=3)
    asked = [Request(include=((4, 6),))]
    (found,) = search_with(beam_search(options), ToyModel(2), *padded([(4, 5, EOS)]), attention=True, requests=asked)
    assert len(found) == 3 and all(one.attention is not None for one in found)
    texts = [tuple(one.tokens.tolist()) for one in found]
    assert len({*texts}) == 3 and all(contains(list(text), (4, 6)) for text in texts)
    for one, other in itertools.pairwise(found):
        assert one.score >= other.score


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    asked=st.lists(phrases, min_size=1, max_size=2).map(tuple),
    alpha=st.sampled_from([1.0, 3.0]),
    beam=st.integers(2, 4),
)
def test_bound_ends_no_earlier_than_all_allows(seed, asked, alpha, beam):
    """Slots are in no order where phrases are asked for."""
    rows, wish = padded([(4, 5, EOS)]), [Request(include=asked)]
    found = {
        stop: search_with(
            beam_search(Settings(beam=beam, gnmt=False, alpha=alpha, a=0, b=10, stop=stop)),
            ToyModel(seed),
            *rows,
            requests=wish,
        )[0][0]
        for stop in ("bound", "all")
    }
    assert found["bound"].score == pytest.approx(found["all"].score, abs=1e-5)


def test_coverage_goes_together_with_phrases_and_a_prefix() -> None:
    config = BeamConfig(beam_size=4, coverage_penalty=0.3, max_len_a=0, max_len_b=8)
    wish = [Request(prefix=(6,), include=((4, 5),)), Request()]
    found = search_with(BeamSearch(config), ToyModel(3), *padded([(4, 5, EOS), (5, EOS)]), requests=wish)
    plain = search_with(BeamSearch(config), ToyModel(3), *padded([(4, 5, EOS), (5, EOS)]))
    tokens = found[0][0].tokens.tolist()
    assert tokens[0] == 6 and contains(tokens, (4, 5))
    assert found[1][0].tokens.tolist() == plain[1][0].tokens.tolist()
    assert found[1][0].score == pytest.approx(plain[1][0].score, abs=1e-5)


ranked = st.lists(
    st.tuples(st.sampled_from([1.0, 2.0, 2.5]), st.integers(0, 3), st.integers(2, 6), st.integers(0, 3)),
    unique_by=lambda option: option[1:3],
    max_size=20,
)


@given(options=ranked, width=st.integers(1, 6))
def test_the_second_beam_is_of_what_the_first_left_and_goes_on(options: list[tuple], width: int) -> None:
    """By a definition that compares every option with every one that was taken; totals are often equal."""
    best_first = sorted(Continuation(*option) for option in options)
    first = allocate(best_first, width)
    left = [one for one in best_first if all(one != other for other in first) and one.token != EOS]
    assert two_beams(best_first, width) == first + allocate(left, width)


class Counted(Continuation):
    """Counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__eq__(other)

    __hash__ = Continuation.__hash__


def test_comparisons_grow_with_the_beam_and_not_with_its_square() -> None:
    options = [Counted(float(token), 0, token, token % 3) for token in range(3, 1203)]
    Counted.comparisons = 0
    assert len(two_beams(options, 400)) == 800
    assert Counted.comparisons <= len(options)
