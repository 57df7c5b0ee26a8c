"""Reading what two toolkits wrote, and comparing it."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)  # its scripts import each other
    return importlib.import_module("same_translations")


def test_hypotheses_are_read_with_their_scores_in_natural_logarithms(script: ModuleType) -> None:
    written = "S-1\t▁a\nT-1\t▁ein\nH-1\t-0.5\t▁ein\u2028 ▁Mann\nD-1\t-0.5\tein Mann\nP-1\t-0.5 -0.5\nH-0\t-1e-3\t\n"
    assert script.answers(written) == {
        0: script.Answer("", pytest.approx(-0.001 * math.log(2))),
        1: script.Answer("▁ein\u2028 ▁Mann", pytest.approx(-0.5 * math.log(2))),
    }


def test_of_a_list_of_marian_the_first_translation_of_each_line_is_read(script: ModuleType) -> None:
    written = "0 ||| ▁ein\u2028 ▁Mann ||| F0= -3 ||| -1.5\n0 ||| ▁ein ||| F0= -4 ||| -2\n1 |||  ||| F0= -1 ||| -1\n"
    assert script.answers_of_marian(written) == {0: script.Answer("▁ein\u2028 ▁Mann", -1.5), 1: script.Answer("", -1.0)}


def test_scores_are_compared_where_translations_are_the_same(script: ModuleType) -> None:
    theirs = {0: script.Answer("a b", -1.0), 1: script.Answer("a", -2.0), 2: script.Answer("c", -3.0)}
    here = {0: script.Answer("a b", -1.25), 1: script.Answer("b", -9.0), 2: script.Answer("c", -3.125)}
    assert script.Comparison.of(theirs, here) == script.Comparison(3, (0, 2), 0.25)


def test_a_line_that_one_of_them_left_out_is_an_error(script: ModuleType) -> None:
    with pytest.raises(AssertionError, match="the same lines"):
        script.Comparison.of({0: script.Answer("a", -1.0)}, {})
