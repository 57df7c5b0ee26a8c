"""Alignment error rate against figures computed by hand."""

from __future__ import annotations

import pytest

from nmt.errors import DataError, UsageError
from nmt.scoring import Score, TextOptions, scorers
from nmt.scoring.aer import read_gold, read_links


def score(found: list[str], gold: list[str]) -> Score:
    return scorers.build(scorers.config_class("aer")(), TextOptions())(found, [gold])


def test_equals_the_formula_of_och_and_ney() -> None:
    """A = 5 links, S = 4, of which 2 are found, and 3 of those found are possible: 1 - (2 + 3) / (5 + 4)."""
    found = score(["0-0 1-1 2-1", "0-0 1-0"], ["0-0 1-1 2?1 3p3 2-2", "1-1"])
    assert found.value == pytest.approx(100 * (1 - 5 / 9))
    assert found.detail == "(precision = 60.00 recall = 50.00 found = 5 sure = 4)"
    assert (found.name, found.higher_is_better) == ("AER", False)


def test_sure_links_alone_make_no_error_and_possible_ones_are_not_missed() -> None:
    assert score(["0-0"], ["0-0 1?1"]).value == score(["0-0 1-1"], ["0-0 1?1"]).value == 0
    assert score(["1-1"], ["0-0 1?1"]).value == 50
    assert score(["5-5"], ["0-0"]).value == 100


def test_counts_are_summed_over_the_text_and_not_averaged() -> None:
    assert score(["0-0", "0-1 1-0 2-2"], ["0-0", "0-0 1-1 2-2"]).value == 50


def test_links_that_stand_twice_count_once_and_lines_without_links_not_at_all() -> None:
    assert score(["0-0 0-0", ""], ["0-0", ""]).value == 0
    assert score([""], [""]).value == 0 and score([""], ["0-0"]).value == 100


def test_both_signs_of_possible_links_mean_the_same() -> None:
    assert read_gold("0-0 1?2") == read_gold("0-0 1p2") == (frozenset({(0, 0)}), frozenset({(0, 0), (1, 2)}))
    assert read_gold("1?2 1-2") == (frozenset({(1, 2)}), frozenset({(1, 2)}))


@pytest.mark.parametrize("line", ["0-", "0:0", "a-b", "0-0-0", "-1-0", "0 - 0", "0-0,1-1", "٣-٤"])
def test_what_is_no_link_is_named(line: str) -> None:
    with pytest.raises(DataError, match="is not a link; write 0-0"):
        read_links(line)


def test_possible_links_are_for_references() -> None:
    with pytest.raises(DataError, match="the link of words 1 and 2 is marked as possible"):
        read_links("0-0 1?2")


def test_a_second_reference_is_refused() -> None:
    with pytest.raises(UsageError, match="takes one reference, not 2"):
        scorers.build(scorers.config_class("aer")(), TextOptions())(["0-0"], [["0-0"], ["0-0"]])
