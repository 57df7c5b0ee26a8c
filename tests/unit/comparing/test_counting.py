"""Words and n-grams, counted by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from nmt.comparing.counting import NGram, WordCounts, counted, decisive, frequency_bands, nearest_of, ngrams, tallies
from nmt.comparing.words import Words


def cut(*lines: str) -> list[Words]:
    return [tuple(line.split()) for line in lines]


def tuples(counts: dict[str, int]) -> dict[Words, int]:
    return {tuple(words.split()): count for words, count in counts.items()}


def test_ngrams_have_one_to_four_words() -> None:
    found = [" ".join(words) for words in ngrams(tuple("abcde"))]
    assert found == [*"abcde", "a b", "b c", "c d", "d e", "a b c", "b c d", "c d e", "a b c d", "b c d e"]
    assert list(ngrams(())) == []


def test_what_is_right_is_clipped_by_the_reference_and_the_rest_is_wrong() -> None:
    """The example of Papineni et al. 2002, section 2.1: "the" seven times, of which a reference has two."""
    found = tallies({"a": cut("the the the")}, [cut("the cat the")])["a"]
    assert found.right == Counter(tuples({"the": 2}))
    assert found.wrong == Counter(tuples({"the": 1, "the the": 2, "the the the": 1}))


def test_each_ngram_is_right_as_often_as_the_reference_that_has_it_most() -> None:
    found = tallies({"a": cut("no no cat")}, [cut("no cat"), cut("no no dog")])["a"]
    assert found.right == Counter(tuples({"no": 2, "cat": 1, "no no": 1, "no cat": 1}))
    assert found.wrong == Counter(tuples({"no no cat": 1}))


def test_lines_are_counted_for_themselves() -> None:
    found = tallies({"a": cut("a", "b"), "b": cut("a", "a")}, [cut("b", "b a")])
    assert found["a"].right == Counter(tuples({"b": 1})) and found["a"].wrong == Counter(tuples({"a": 1}))
    assert found["b"].right == Counter(tuples({"a": 1})) and found["b"].wrong == Counter(tuples({"a": 1}))


def test_the_most_decisive_comes_first_and_equal_counts_are_left_out() -> None:
    first = Counter(tuples({"a": 10, "b": 20, "c": 1, "d": 5, "e f": 2}))
    second = Counter(tuples({"b": 10, "d": 5, "g": 4}))
    found = decisive(first, second, most=9)
    assert [(" ".join(one.words), one.first, one.second) for one in found] == [
        ("a", 10, 0),  # 10 / sqrt(10) = 3.16
        ("g", 0, 4),  # 2
        ("b", 20, 10),  # 10 / sqrt(30) = 1.83
        ("e f", 2, 0),  # 1.41
        ("c", 1, 0),  # 1
    ]
    assert [round(one.weight, 2) for one in found] == [-3.16, 2.0, -1.83, -1.41, -1.0]


def test_of_each_length_and_each_system_there_are_so_many() -> None:
    first, second = Counter(tuples({"a": 3, "b": 2, "a b": 2, "b a": 1})), Counter(tuples({"c": 1, "d": 2}))
    found = [" ".join(one.words) for one in decisive(first, second, most=1)]
    assert sorted(found) == ["a", "a b", "d"]


def test_the_order_of_equals_does_not_depend_on_chance() -> None:
    first = Counter(tuples({"b": 1, "a": 1, "a b": 1}))
    assert [one.words for one in decisive(first, Counter(), most=5)] == [("a", "b"), ("a",), ("b",)]


def test_weight_is_zero_for_equal_counts() -> None:
    assert NGram(("a",), 3, 3).weight == 0 and NGram(("a",), 0, 9).weight == math.sqrt(9)


def test_bands_have_words_by_how_often_they_stand_in_the_text() -> None:
    known = {"the": 7, "cat": 1, "sat": 2, "dog": 4}
    references = [cut("the cat sat", "the dog")]
    bands = frequency_bands({"a": cut("the the cat ran", "the dog"), "b": cut("", "a dog sat")}, references, known)
    assert [(band.label, band.least, band.most) for band in bands] == [
        ("0", 0, 0),
        ("1", 1, 1),
        ("2-4", 2, 4),
        ("5-9", 5, 9),
    ]
    assert [band.systems["a"] for band in bands] == [
        WordCounts(expected=0, produced=1, right=0),  # ran
        WordCounts(expected=1, produced=1, right=1),  # cat
        WordCounts(expected=2, produced=1, right=1),  # sat, dog
        WordCounts(expected=2, produced=3, right=2),  # the, clipped in the first line
    ]
    assert [band.systems["b"] for band in bands] == [
        WordCounts(0, 1, 0),  # a
        WordCounts(1, 0, 0),
        WordCounts(2, 2, 1),  # dog, and sat in the other line
        WordCounts(2, 0, 0),
    ]


def test_the_last_band_is_open() -> None:
    (band,) = frequency_bands({"a": cut("x"), "b": cut("x")}, [cut("x")], {"x": 12345})
    assert band.label == "1,000 and more"


def test_shares_of_a_band() -> None:
    one = WordCounts(expected=4, produced=2, right=1)
    assert (one.precision, one.recall, one.f1) == (0.5, 0.25, pytest.approx(1 / 3))
    never = WordCounts(expected=0, produced=2, right=0)
    assert (never.precision, never.recall, never.f1) == (0.0, None, None)
    missed = WordCounts(expected=2, produced=0, right=0)
    assert (missed.precision, missed.recall, missed.f1) == (None, 0.0, 0.0)


def test_of_several_references_the_nearest_one_counts() -> None:
    references = [cut("one long text with a cat in it"), cut("a cat")]
    assert nearest_of(("a", "cat", "sat"), [lines[0] for lines in references]) == 1  # F1 4/5 against 4/11
    bands = frequency_bands({"a": cut("a cat sat"), "b": cut("a cat sat")}, references, {})
    assert bands[0].systems["a"] == WordCounts(expected=2, produced=3, right=2)
    assert nearest_of((), [(), ()]) == 0


def test_words_of_a_text_are_counted() -> None:
    assert counted(cut("a b a", "", "a")) == {"a": 3, "b": 1}
