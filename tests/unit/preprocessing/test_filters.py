"""The filters of the training split, one rule at a time."""

from __future__ import annotations

import pytest

from nmt.config.preprocessing import FilterConfig, Leaked
from nmt.data.language_pair import LanguagePair
from nmt.data.text.parallel import Pair
from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.errors import UsageError
from nmt.preprocessing.encoding import encode_all
from nmt.preprocessing.filters import PairFilter, TextFilter
from nmt.preprocessing.pairs import EncodedPairs, Verdict


def encoded(*pairs: Pair, config: FilterConfig | None = None) -> EncodedPairs:
    words = tokenizers.build(WordsConfig()).train(["a b c"], 1)
    tokenizer_pair = LanguagePair("x", "y", words, words, shared=True)
    rules, near = (None, False) if config is None else (TextFilter(config), config.near_duplicates)
    return next(encode_all(pairs, tokenizer_pair, only_source=False, workers=1, text_filter=rules, near=near))


def judged(config: FilterConfig, *pairs: Pair) -> list[Verdict]:
    return [Verdict(code) for code in PairFilter(config).judge(encoded(*pairs, config=config))]


@pytest.mark.parametrize(
    ("config", "pair", "reason"),
    [
        (FilterConfig(), ("a", "b"), Verdict.kept),
        (FilterConfig(), (None, "b"), Verdict.invalid),
        (FilterConfig(), ("a", None), Verdict.invalid),
        (FilterConfig(), ("", "b"), Verdict.empty_source),
        (FilterConfig(), (" \t\u00a0", "b"), Verdict.empty_source),
        (FilterConfig(), ("a", " "), Verdict.empty_target),
        (FilterConfig(), ("", ""), Verdict.empty_source),
        (FilterConfig(min_length=2), ("a b", "a b"), Verdict.kept),
        (FilterConfig(min_length=2), ("a b", "a"), Verdict.too_short),
        (FilterConfig(max_length=3), ("a b c", "a b c"), Verdict.kept),
        (FilterConfig(max_length=3), ("a b c a", "a b c"), Verdict.too_long),
        (FilterConfig(max_length=3), ("a", "a b c a"), Verdict.too_long),
        (FilterConfig(max_ratio=2.0), ("a", "a b"), Verdict.kept),
        (FilterConfig(max_ratio=2.0), ("a", "a b c"), Verdict.ratio),
        (FilterConfig(max_ratio=1.5), ("a b", "a b c"), Verdict.kept),
        (FilterConfig(max_ratio=1.5), ("a", "a b"), Verdict.ratio),
        (FilterConfig(max_characters=3), ("äöü", "a b"), Verdict.kept),
        (FilterConfig(max_characters=3), ("äöü", "a bc"), Verdict.characters),
        (FilterConfig(max_word=3), ("abc äöü", "a-b"), Verdict.kept),
        (FilterConfig(max_word=3), ("abc", "a äöüß"), Verdict.long_word),
        (FilterConfig(), ("a b", "a b"), Verdict.kept),
        (FilterConfig(drop_copies=True), ("a b", "a b"), Verdict.copied),
        (FilterConfig(drop_copies=True), ("a b", "a  b"), Verdict.kept),
        (FilterConfig(max_digits_apart=1), ("in 1999", "19 99 3"), Verdict.kept),
        (FilterConfig(max_digits_apart=1), ("in 1999", "١٩"), Verdict.digits),
        (FilterConfig(max_digits_apart=0), ("1", "2"), Verdict.kept),
        (FilterConfig(max_digits_apart=0), ("1", "a"), Verdict.digits),
        (FilterConfig(max_punctuation_apart=2), ("a, b. c!", "a。"), Verdict.kept),
        (FilterConfig(max_punctuation_apart=2), ("a, b. c!", "a"), Verdict.punctuation),
        (FilterConfig(source_script="Latin"), ("ab вг", "вг"), Verdict.kept),
        (FilterConfig(source_script="Latin"), ("a вг", "a"), Verdict.source_script),
        (FilterConfig(target_script="Han"), ("a", "漢字 a 1."), Verdict.kept),
        (FilterConfig(target_script="Hani", min_script=1.0), ("a", "漢字 a 1."), Verdict.target_script),
        (FilterConfig(target_script="Latin"), ("a", "1 + 1"), Verdict.kept),
        (FilterConfig(max_length=1, max_characters=1), ("aa b", "a"), Verdict.too_long),
        (FilterConfig(max_characters=3, drop_copies=True), ("aaaa", "aaaa"), Verdict.characters),
    ],
)
def test_a_pair_is_judged_by_the_first_rule_that_it_breaks(config: FilterConfig, pair: Pair, reason: Verdict) -> None:
    assert judged(config, pair) == [reason]


def test_repetitions_are_kept_unless_they_are_to_be_dropped() -> None:
    pairs: list[Pair] = [("a", "b"), ("a", "c"), ("a", "b")]
    assert judged(FilterConfig(), *pairs) == [Verdict.kept] * 3
    assert judged(FilterConfig(drop_duplicates=True), *pairs) == [Verdict.kept, Verdict.kept, Verdict.duplicate]


def test_duplicates_are_found_across_chunks() -> None:
    rules = PairFilter(FilterConfig(drop_duplicates=True))
    rules.judge(encoded(("a", "b")))
    assert rules.judge(encoded(("c", "b"), ("a", "b"))).tolist() == [Verdict.kept, Verdict.duplicate]


def test_a_pair_that_was_dropped_for_another_reason_has_not_been_seen() -> None:
    config = FilterConfig(drop_duplicates=True, max_length=1)
    assert judged(config, ("a b", "a"), ("a b", "a")) == [Verdict.too_long, Verdict.too_long]


def test_the_same_words_on_other_sides_are_another_pair() -> None:
    assert judged(FilterConfig(drop_duplicates=True), ("a", "b"), ("b", "a")) == [Verdict.kept] * 2


@pytest.mark.parametrize("option", ["min_length", "max_length", "max_ratio"])
def test_limits_must_be_positive(option: str) -> None:
    with pytest.raises(UsageError, match=f"filters.{option}=0"):
        FilterConfig(**{option: 0})


def test_near_duplicates_differ_in_case_punctuation_and_spaces_alone() -> None:
    pairs: list[Pair] = [("A b.", "ＢＣ"), ("a  B", "bc!"), ("a bc", "bc"), ("ab", "b c")]
    config = FilterConfig(drop_duplicates=True, near_duplicates=True)
    assert judged(config, *pairs) == [Verdict.kept, Verdict.duplicate, Verdict.kept, Verdict.duplicate]
    symbols: list[Pair] = [("10 $", "x"), ("10 €", "x"), ("\U0001f600", "x"), ("♥", "x"), ("...", "x"), ("?!", "x")]
    assert judged(config, *symbols) == [Verdict.kept] * len(symbols)


@pytest.mark.parametrize(
    ("what", "reasons"), [(Leaked.pairs, "leaked kept kept"), (Leaked.sources, "leaked leaked kept")]
)
def test_pairs_that_stand_elsewhere_too_are_dropped(what: Leaked, reasons: str) -> None:
    elsewhere, config = encoded(("a", "b")), FilterConfig(drop_leaked=what)
    keys = elsewhere.columns["pair_key"] if what is Leaked.pairs else elsewhere.columns["source_key"]
    codes = PairFilter(config, keys).judge(encoded(("a", "b"), ("a", "c"), ("b", "b")))
    assert [Verdict(code).name for code in codes] == reasons.split()


@pytest.mark.parametrize("option", ["source_script", "target_script"])
def test_a_script_that_unicode_has_not_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match="'Englisch' is not a Unicode script; name one such as Latin"):
        TextFilter(FilterConfig(**{option: "Englisch"}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"max_characters": 0},
        {"max_word": 0},
        {"max_digits_apart": -1},
        {"max_punctuation_apart": -1},
        {"min_script": 0},
    ],
)
def test_bounds_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=f"filters.{name}"):
        FilterConfig(**options)  # type: ignore[arg-type]
