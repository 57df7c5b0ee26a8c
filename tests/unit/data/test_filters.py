"""The filters of the training split, one rule at a time."""

from __future__ import annotations

import pytest

from nmt.config.sections import FilterConfig
from nmt.data.encoding import EncodedPairs, encode_all
from nmt.data.language_pair import LanguagePair
from nmt.data.parallel_text import Pair
from nmt.data.report import PairFilter, Reason
from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.errors import UsageError


def encoded(*pairs: Pair) -> EncodedPairs:
    words = tokenizers.build(WordsConfig()).train(["a b c"], 1)
    tokenizer_pair = LanguagePair("x", "y", words, words, shared=True)
    return next(encode_all(pairs, tokenizer_pair, only_source=False, workers=1))


def judged(config: FilterConfig, *pairs: Pair) -> list[Reason]:
    return [Reason(code) for code in PairFilter(config).judge(encoded(*pairs))]


@pytest.mark.parametrize(
    ("config", "pair", "reason"),
    [
        (FilterConfig(), ("a", "b"), Reason.kept),
        (FilterConfig(), (None, "b"), Reason.invalid),
        (FilterConfig(), ("a", None), Reason.invalid),
        (FilterConfig(), ("", "b"), Reason.empty_source),
        (FilterConfig(), (" \t\u00a0", "b"), Reason.empty_source),
        (FilterConfig(), ("a", " "), Reason.empty_target),
        (FilterConfig(), ("", ""), Reason.empty_source),
        (FilterConfig(min_length=2), ("a b", "a b"), Reason.kept),
        (FilterConfig(min_length=2), ("a b", "a"), Reason.too_short),
        (FilterConfig(max_length=3), ("a b c", "a b c"), Reason.kept),
        (FilterConfig(max_length=3), ("a b c a", "a b c"), Reason.too_long),
        (FilterConfig(max_length=3), ("a", "a b c a"), Reason.too_long),
        (FilterConfig(max_ratio=2.0), ("a", "a b"), Reason.kept),
        (FilterConfig(max_ratio=2.0), ("a", "a b c"), Reason.ratio),
        (FilterConfig(max_ratio=1.5), ("a b", "a b c"), Reason.kept),
        (FilterConfig(max_ratio=1.5), ("a", "a b"), Reason.ratio),
    ],
)
def test_a_pair_is_judged_by_the_first_rule_that_it_breaks(config: FilterConfig, pair: Pair, reason: Reason) -> None:
    assert judged(config, pair) == [reason]


def test_repetitions_are_kept_unless_they_are_to_be_dropped() -> None:
    pairs: list[Pair] = [("a", "b"), ("a", "c"), ("a", "b")]
    assert judged(FilterConfig(), *pairs) == [Reason.kept] * 3
    assert judged(FilterConfig(drop_duplicates=True), *pairs) == [Reason.kept, Reason.kept, Reason.duplicate]


def test_duplicates_are_found_across_chunks() -> None:
    rules = PairFilter(FilterConfig(drop_duplicates=True))
    rules.judge(encoded(("a", "b")))
    assert rules.judge(encoded(("c", "b"), ("a", "b"))).tolist() == [Reason.kept, Reason.duplicate]


def test_a_pair_that_was_dropped_for_another_reason_has_not_been_seen() -> None:
    config = FilterConfig(drop_duplicates=True, max_length=1)
    assert judged(config, ("a b", "a"), ("a b", "a")) == [Reason.too_long, Reason.too_long]


def test_the_same_words_on_other_sides_are_another_pair() -> None:
    assert judged(FilterConfig(drop_duplicates=True), ("a", "b"), ("b", "a")) == [Reason.kept] * 2


@pytest.mark.parametrize("option", ["min_length", "max_length", "max_ratio"])
def test_limits_must_be_positive(option: str) -> None:
    with pytest.raises(UsageError, match=f"filters.{option}=0"):
        FilterConfig(**{option: 0})
