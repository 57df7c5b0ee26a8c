"""The filters of the training split, one rule at a time."""

from __future__ import annotations

import pytest

from nmt.config.preprocessing import FilterConfig, Leaked
from nmt.data.encoding import EncodedPairs, encode_all
from nmt.data.filters import PairFilter, Reason, TextRules
from nmt.data.language_pair import LanguagePair
from nmt.data.parallel_text import Pair
from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.errors import UsageError


def encoded(*pairs: Pair, config: FilterConfig | None = None) -> EncodedPairs:
    words = tokenizers.build(WordsConfig()).train(["a b c"], 1)
    tokenizer_pair = LanguagePair("x", "y", words, words, shared=True)
    rules, near = (None, False) if config is None else (TextRules(config), config.near_duplicates)
    return next(encode_all(pairs, tokenizer_pair, only_source=False, workers=1, rules=rules, near=near))


def judged(config: FilterConfig, *pairs: Pair) -> list[Reason]:
    return [Reason(code) for code in PairFilter(config).judge(encoded(*pairs, config=config))]


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
        (FilterConfig(max_characters=3), ("äöü", "a b"), Reason.kept),
        (FilterConfig(max_characters=3), ("äöü", "a bc"), Reason.characters),
        (FilterConfig(max_word=3), ("abc äöü", "a-b"), Reason.kept),
        (FilterConfig(max_word=3), ("abc", "a äöüß"), Reason.long_word),
        (FilterConfig(), ("a b", "a b"), Reason.kept),
        (FilterConfig(drop_copies=True), ("a b", "a b"), Reason.copied),
        (FilterConfig(drop_copies=True), ("a b", "a  b"), Reason.kept),
        (FilterConfig(max_digits_apart=1), ("in 1999", "19 99 3"), Reason.kept),
        (FilterConfig(max_digits_apart=1), ("in 1999", "١٩"), Reason.digits),
        (FilterConfig(max_digits_apart=0), ("1", "2"), Reason.kept),
        (FilterConfig(max_digits_apart=0), ("1", "a"), Reason.digits),
        (FilterConfig(max_punctuation_apart=2), ("a, b. c!", "a。"), Reason.kept),
        (FilterConfig(max_punctuation_apart=2), ("a, b. c!", "a"), Reason.punctuation),
        (FilterConfig(source_script="Latin"), ("ab вг", "вг"), Reason.kept),
        (FilterConfig(source_script="Latin"), ("a вг", "a"), Reason.source_script),
        (FilterConfig(target_script="Han"), ("a", "漢字 a 1."), Reason.kept),
        (FilterConfig(target_script="Hani", min_script=1.0), ("a", "漢字 a 1."), Reason.target_script),
        (FilterConfig(target_script="Latin"), ("a", "1 + 1"), Reason.kept),
        (FilterConfig(max_length=1, max_characters=1), ("aa b", "a"), Reason.too_long),
        (FilterConfig(max_characters=3, drop_copies=True), ("aaaa", "aaaa"), Reason.characters),
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


def test_near_duplicates_differ_in_case_punctuation_and_spaces_alone() -> None:
    pairs: list[Pair] = [("A b.", "ＢＣ"), ("a  B", "bc!"), ("a bc", "bc"), ("ab", "b c")]
    config = FilterConfig(drop_duplicates=True, near_duplicates=True)
    assert judged(config, *pairs) == [Reason.kept, Reason.duplicate, Reason.kept, Reason.duplicate]
    symbols: list[Pair] = [("10 $", "x"), ("10 €", "x"), ("\U0001f600", "x"), ("♥", "x"), ("...", "x"), ("?!", "x")]
    assert judged(config, *symbols) == [Reason.kept] * len(symbols)


@pytest.mark.parametrize(
    ("what", "reasons"), [(Leaked.pairs, "leaked kept kept"), (Leaked.sources, "leaked leaked kept")]
)
def test_pairs_that_stand_elsewhere_too_are_dropped(what: Leaked, reasons: str) -> None:
    elsewhere, config = encoded(("a", "b")), FilterConfig(drop_leaked=what)
    keys = elsewhere.pair_keys if what is Leaked.pairs else elsewhere.source_keys
    codes = PairFilter(config, keys).judge(encoded(("a", "b"), ("a", "c"), ("b", "b")))
    assert [Reason(code).name for code in codes] == reasons.split()


@pytest.mark.parametrize("option", ["source_script", "target_script"])
def test_a_script_that_unicode_has_not_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match="'Englisch' is no script of Unicode; name one such as Latin"):
        TextRules(FilterConfig(**{option: "Englisch"}))  # type: ignore[arg-type]


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
