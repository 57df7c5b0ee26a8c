"""Signs of trouble, one at a time."""

from __future__ import annotations

import pytest

from nmt.scoring.signs import is_repetitive, signs


def test_the_length_ratio_is_that_of_all_words_to_those_of_the_first_reference() -> None:
    assert signs(["a b c", "d"], [["a b", "c d e"], ["x", "y"]]).length_ratio == pytest.approx(4 / 5)
    assert signs(["a"], [[""]]).length_ratio is None


def test_a_line_without_words_is_empty_unless_its_references_are() -> None:
    assert signs(["", "  ", "", "a"], [["a", "b", "", "c"]]).empty == 2
    assert signs([""], [[""], ["a"]]).empty == 1


@pytest.mark.parametrize(("words", "reference", "over_long"), [(25, 10, 1), (20, 10, 0), (21, 10, 1), (15, 5, 0)])
def test_over_long_is_more_than_twice_and_more_than_ten_words_more(words: int, reference: int, over_long: int) -> None:
    hypothesis = " ".join(map(str, range(words)))
    assert signs([hypothesis], [["x " * reference]]).over_long == over_long
    assert signs([hypothesis], [["x " * reference], ["x " * 30]]).over_long == 0  # the longest reference counts


@pytest.mark.parametrize(
    "line", ["no no no no", "x a b a b a b a b", "a b c " * 4, "z a b c d a b c d a b c d a b c d y"]
)
def test_an_ngram_that_stands_four_times_in_a_row_is_seen(line: str) -> None:
    assert is_repetitive(line.split())
    assert signs([line, "a b"], [["a", "a"]]).repeated == 1


@pytest.mark.parametrize(
    "line", ["", "no no no", "a b a b a b a", "no yes no yes no yes no", "a b c d e " * 4, "a a b a a b a a b a"]
)
def test_less_than_that_is_not(line: str) -> None:
    assert not is_repetitive(line.split())


def test_a_copy_of_the_source_counts_where_no_reference_is_one() -> None:
    sources = ["ein Hund", "Berlin", "zwei", "", "drei  Hunde"]
    found = signs(
        ["ein Hund", "Berlin", "two", "", "drei Hunde"], [["a dog", "Berlin", "two", "x", "three dogs"]], sources
    )
    assert found.copies == 2


def test_without_sources_nothing_is_said_about_them() -> None:
    found = signs(["a"], [["a"]])
    assert (found.copies, found.unusual_length) == (None, None)
    assert list(found.counts()) == ["empty", "over_long", "repeated"]


def test_lengths_are_unusual_where_98_of_100_references_have_others() -> None:
    """Of 200 references two are shorter than the rest, and two are longer: their lengths are left out."""
    sources = ["a b c d e f g h i"] * 200
    lengths = [1, 1, *[8, 10] * 98, 30, 30]
    references = ["x " * length for length in lengths]
    hypotheses = ["x " * length for length in [1, 7, 8, 9, 10, 11, 30, *[9] * 193]]
    assert signs(hypotheses, [references], sources).unusual_length == 4
    assert signs(references, [references], sources).unusual_length == 4
    assert signs(["x"], [["x y"]], ["a"]).unusual_length == 1


def test_lengths_are_compared_by_their_ratio_to_the_source() -> None:
    """References are exactly twice as long as their sources, which differ in length."""
    sources = ["a " * length for length in range(1, 41)]
    references = ["x " * 2 * length for length in range(1, 41)]
    assert signs(references, [references], sources).unusual_length == 0
    hypotheses = [*references[:38], "x " * 77, "x " * 81]
    assert signs(hypotheses, [references], sources).unusual_length == 2


@pytest.mark.parametrize(("hypothesis", "count"), [("", 0), ("x", 1)])
def test_an_empty_source_has_a_usual_length_for_an_empty_line_alone(hypothesis: str, count: int) -> None:
    assert signs(["x", hypothesis], [["x", ""]], ["a", ""]).unusual_length == count
