"""Comparisons of small texts: every figure is that of its part, every sentence stands where it should."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nmt
from nmt import comparing
from nmt.comparing import Comparison
from nmt.config.comparing import CompareConfig
from nmt.errors import DataError, UsageError
from nmt.scoring import Score, TextOptions, scorers
from nmt.scoring.signs import signs
from tests.html_pages import Page

METRICS = ["bleu", "chrf", "ter", "rouge_l", "exact"]

REFERENCE = ["the cat sat on the mat", "a dog barks", "two birds sing", "it rains", "yes"]
BASE = ["the cat sat on a mat", "a dog barks", "birds sing two", "it rains again", ""]
BIG = ["the cat sat on the mat", "the dog barks", "two birds sing", "it rains", ""]
SOURCE = ["die katze " * 5, "ein hund bellt", "zwei", "es regnet", "ja"]


def compared(**options: Any) -> Comparison:
    given = {"paired": "none", "resamples": 20, **options}
    return nmt.compare({"base": BASE, "big": BIG}, [REFERENCE], SOURCE, **given)


def test_scores_of_the_text_and_of_lines_are_those_of_the_metric() -> None:
    found = compared(metrics=["chrf", "bleu"])
    assert found.metrics == ("chrf", "bleu")
    for metric in found.metrics:
        scorer = scorers.build(scorers.config_class(metric)(), TextOptions())
        for name, lines in (("base", BASE), ("big", BIG)):
            assert found.figures[name][metric].score.value == scorer(lines, [REFERENCE]).value
            (expected,) = scorer.sentences(lines[:1], [REFERENCE[:1]])
            assert found.sentence(1).translations[name].scores[metric] == expected


def test_scores_by_length_are_those_of_the_lines_of_a_band() -> None:
    found = compared(metrics=["chrf"])
    scorer = scorers.build(scorers.config_class("chrf")(), TextOptions())
    assert [(band.label, band.lines) for band in found.lengths] == [("0-9 words", 4), ("10-19 words", 1)]
    assert found.lengths[0].scores["base"]["chrf"] == scorer(BASE[1:], [REFERENCE[1:]]).value
    assert found.lengths[1].scores["big"]["chrf"] == scorer(BIG[:1], [REFERENCE[:1]]).value
    assert (found.lengths_of, found.signs["big"]) == ("source", signs(BIG, [REFERENCE], SOURCE))


def test_without_sources_lengths_are_those_of_the_reference() -> None:
    found = nmt.compare({"a": ["x"], "b": ["y"]}, ["\u732b" * 12], paired="none", resamples=5)
    assert found.lengths_of == "reference" and [band.label for band in found.lengths] == ["10-19 words"]
    assert found.sentences == () or found.sentences[0].source is None


def test_gains_and_losses_are_sorted_by_the_first_metric() -> None:
    (pair,) = compared(metrics=["chrf"]).pairs
    assert (pair.first, pair.second, pair.better, pair.worse, pair.equal) == ("base", "big", 3, 1, 1)
    found = compared(metrics=["chrf"])
    gains = [
        found.sentence(number).translations["big"].scores["chrf"]
        - found.sentence(number).translations["base"].scores["chrf"]
        for number in pair.gains
    ]
    assert sorted(pair.gains) == [1, 3, 4] and gains == sorted(gains, reverse=True) and pair.losses == (2,)


def test_of_a_metric_of_errors_less_is_better() -> None:
    (pair,) = compared(metrics=["ter"]).pairs
    assert (sorted(pair.gains), pair.losses) == ([1, 3, 4], (2,))


def test_so_many_sentences_are_kept_in_the_order_of_the_text() -> None:
    found = compared(count=1)
    assert [len(found.pairs[0].gains), len(found.pairs[0].losses)] == [1, 1]
    numbers = [one.number for one in found.sentences]
    assert numbers == sorted({*found.pairs[0].gains, *found.pairs[0].losses})


def test_words_that_differ_are_told_of_both_systems_and_of_the_reference() -> None:
    one = compared().sentence(1)
    base, big = one.translations["base"], one.translations["big"]
    assert base.pieces == ("the", " cat", " sat", " on", " a", " mat") and base.text == BASE[0]
    assert (base.wrong, base.differing) == ((4,), {"big": (4,)})
    assert (big.wrong, big.differing) == ((), {"base": (4,)})
    assert (one.source, one.references) == (SOURCE[0], (REFERENCE[0],))


def test_words_are_counted_in_the_references_or_in_the_training_text() -> None:
    found = compared()
    assert found.counted_in == "references" and [band.label for band in found.frequencies] == ["0", "1", "2-4"]
    found = compared(train=iter(["the the the the the", "cat"]))
    assert found.counted_in == "training text" and [band.label for band in found.frequencies] == ["0", "1", "5-9"]
    assert found.frequencies[-1].systems["big"].expected == 2


def test_a_metric_that_knows_only_whole_texts_is_refused() -> None:
    class OfTexts:
        higher_is_better = True

        def __call__(self, hypotheses: Any, references: Any) -> Score:
            return Score("own", 1.0, True, "own")

    with pytest.raises(UsageError, match="'own' does not score single lines"):
        comparing.compared(CompareConfig(), {"own": OfTexts()}, {"a": BASE, "b": BIG}, [REFERENCE])


@pytest.mark.parametrize(
    ("one", "other", "reference"), [(["x"], ["y"], ["x"]), (["", ""], ["", ""], ["a", ""]), (["a b"], [""], [""])]
)
@pytest.mark.parametrize("paired", ["none", "bootstrap", "randomization"])
def test_the_smallest_texts_can_be_compared(
    one: list[str], other: list[str], reference: list[str], paired: str
) -> None:
    found = nmt.compare({"one": one, "other": other}, reference, one, paired=paired, resamples=20, metrics=METRICS)
    assert found.lines == len(one) and Page(found.page()).text("h1") == ["Comparison of systems"]


def test_each_two_systems_are_a_pair_and_the_first_is_what_others_are_tested_against() -> None:
    found = nmt.compare({"a": BASE, "b": BIG, "c": REFERENCE}, REFERENCE, resamples=50)
    assert [(pair.first, pair.second) for pair in found.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found.figures["a"]["bleu"].p_value is None
    assert all(found.figures[name]["bleu"].p_value is not None for name in "bc")
    assert all(figure.interval is not None for one in found.figures.values() for figure in one.values())


def test_ngrams_that_one_system_has_right_or_wrong() -> None:
    (pair,) = compared().pairs
    right = {" ".join(one.words): (one.first, one.second) for one in pair.right}
    wrong = {" ".join(one.words): (one.first, one.second) for one in pair.wrong}
    assert right["the"] == (1, 2) and right["two birds sing"] == (0, 1) and right["a dog"] == (1, 0)
    assert wrong["again"] == (1, 0) and wrong["the dog"] == (0, 1) and "cat" not in right


def test_plain_data_is_json_and_has_what_the_objects_compute() -> None:
    found = compared()
    tree = json.loads(json.dumps(found.plain()))
    assert tree["figures"]["big"][0]["score"] == found.figures["big"]["bleu"].score.value
    assert tree["frequencies"][1]["systems"]["base"]["recall"] == found.frequencies[1].systems["base"].recall
    assert tree["pairs"][0]["gains"] == list(found.pairs[0].gains)
    assert tree["signs"]["base"]["empty"] == {"count": 1, "share": 0.2}


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    shown = compared()._repr_html_()
    assert shown.startswith("<iframe ") and "&lt;!DOCTYPE html&gt;" in shown and shown.count("<") == 2


@pytest.mark.parametrize(
    ("systems", "references", "sources", "options", "error", "said"),
    [
        ({"a": ["x"]}, [["x"]], None, {}, UsageError, "at least two systems, not 1"),
        ({"a": ["x"], "b": ["y"]}, [], None, {}, UsageError, "compare needs at least one reference"),
        ([["x"], ["y"]], ["x"], None, {}, UsageError, "compare needs a mapping from system names to lines"),
        (
            {"a": "x", "b": "y"},
            ["x"],
            None,
            {},
            UsageError,
            "compare takes lists of lines; put a single one in brackets",
        ),
        ({"a": ["x"], "b": ["y"]}, "x", None, {}, UsageError, "compare takes lists of lines"),
        ({"a": ["0-0"], "b": ["y"]}, ["0-0"], None, {"metrics": ["aer"]}, DataError, "b:1: 'y' is not a link"),
        ({"a": ["x"], "b": ["y", "z"]}, [["x"]], None, {}, DataError, "system 'a' 1, system 'b' 2, reference 1 1"),
        ({"a": ["x"], "b": ["y"]}, [["x"]], ["a", "b"], {}, DataError, "sources 2"),
        ({"a": [], "b": []}, [[]], None, {}, DataError, "the texts are empty"),
        ({"a": ["x"], "b": ["y"]}, ["x"], None, {"metric": "bleu"}, UsageError, "no option 'metric' .did you mean"),
        ({"a": ["x"], "b": ["y"]}, ["x"], None, {"output": "x"}, UsageError, "no option 'output'"),
        ({"a": ["x"], "b": ["y"]}, ["x"], None, {"metrics": ["bluu"]}, UsageError, "did you mean 'bleu'"),
        ({"a": ["x"], "b": ["y"]}, ["x"], None, {"tokenize": "13b"}, UsageError, "unknown tokenizer"),
        ({"a": ["x"], "b": ["y"]}, ["x"], None, {"count": 0}, UsageError, "count=0"),
        ({"a": ["x"], "b": ["y"]}, ["x"], None, {"paired": "t-test"}, UsageError, "paired='t-test' must be one of"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(
    systems: Any, references: Any, sources: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        nmt.compare(systems, references, sources, **options)
