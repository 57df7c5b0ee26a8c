"""The page of a comparison: it holds the figures, its text is text whatever it is, and it asks nobody for anything."""

from __future__ import annotations

import re
from typing import Any

import pytest

import nmt
from tests.html_pages import Page
from tests.unit.comparing.test_comparison import compared
from tests.unit.reporting.test_attention_page import data_of


def data(page: str) -> Any:
    return data_of(page)


def test_elements_are_closed_in_order_and_figures_stand_in_tables() -> None:
    found = compared()
    page = Page(found.page())
    cells = page.text("td")
    figure = found.figures["big"]["bleu"]
    assert f"{figure.score.value:.2f} \u00b1 {figure.interval:.2f}" in cells
    assert f"BLEU|{figure.score.signature}" in " ".join(page.text("p"))
    assert page.text("h2") == ["Scores", "By length of the source", "By frequency of words", "Two systems"]
    assert "2 systems, 5 lines, one reference; words tokenized by 13a" in page.text("p")


def test_a_single_line_is_one_line() -> None:
    page = nmt.compare({"a": ["x"], "b": ["y"]}, [["x"], ["y"]], paired="none", resamples=5).page()
    assert "2 systems, one line, 2 references; words tokenized by 13a" in Page(page).text("p")


def test_p_values_stand_beside_the_scores_where_systems_were_tested() -> None:
    tested, plain = compared(paired="bootstrap", resamples=50).page(), compared().page()
    assert "(p = " in tested and "chance alone" in tested
    assert "(p = " not in plain and "chance alone" not in plain


def test_there_is_a_bar_for_each_system_in_each_band() -> None:
    found = compared(metrics=["bleu", "chrf"])
    bars = [attributes for tag, attributes in Page(found.page()).elements if tag == "rect"]
    wanted = sum(any(one.expected for one in band.systems.values()) for band in found.frequencies)
    assert len(bars) == 2 * (2 * len(found.lengths) + wanted)


def test_the_script_is_given_pairs_ngrams_and_sentences() -> None:
    found = compared(metrics=["chrf", "ter"])
    given = data(found.page())
    assert (given["systems"], given["metrics"], given["higher"]) == (["base", "big"], ["chrF2", "TER"], [True, False])
    (pair,) = given["pairs"]
    assert pair["gains"] == list(found.pairs[0].gains) and [2, "a dog", 1, 0] in pair["right"]
    one = given["sentences"]["1"]
    assert one["references"] == ["the cat sat on the mat"]
    assert one["translations"][0]["differing"] == {"1": [4]} and one["translations"][0]["wrong"] == [4]


@pytest.mark.parametrize(
    "word", ["</script><script>alert(1)</script>", "<b>&'\"", "\u0645\u0631\u062d\u0628\u0627", "\u732b\u304c"]
)
def test_text_and_names_are_text_whatever_they_are(word: str) -> None:
    page = nmt.compare({word: [word], f"{word}2": ["x"]}, [word], [word], paired="none", resamples=5).page()
    assert page.count("<script") == 2 and "<b>&" not in page and "alert(1)</script>" not in page
    Page(page)
    given = data(page)
    assert given["systems"] == [word, f"{word}2"]
    (one,) = given["sentences"].values()
    assert "".join(one["translations"][0]["pieces"]) == one["source"] == word


def test_the_page_may_not_and_does_not_ask_for_anything() -> None:
    page = compared().page()
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|fetch\(|XMLHttpRequest|import\(|<link rel=\"stylesheet\"|src=\"|innerHTML", page)


def test_a_thousand_sentences_make_a_page_of_less_than_a_megabyte() -> None:
    texts = [[f"{letter} word{number} is here for you to read" for number in range(1000)] for letter in "abc"]
    found = nmt.compare(
        dict(zip("ab", texts)), texts[2], texts[2], paired="none", resamples=5, metrics=["exact", "chrf"]
    )
    assert len(found.page().encode()) < 1_000_000
