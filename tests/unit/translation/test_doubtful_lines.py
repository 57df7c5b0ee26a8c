"""Warnings of lines that a model will hardly translate well."""

from __future__ import annotations

import logging

import pytest

from nmt.translation import Translator
from tests.tiny_models import WORDS, write_tiny_model

pytestmark = pytest.mark.slow  # loads the tables of languages

ENGLISH = "the man and the two dogs run"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """From German to English, of whole words."""
    folder = tmp_path_factory.mktemp("model") / "lstm"
    return Translator.load(write_tiny_model(folder, words=(*WORDS, "the", "and")), "cpu")


def warnings(translator: Translator, caplog: pytest.LogCaptureFixture, lines: list[str], **options: int) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        translator.translate(lines, **options)
    return [record.getMessage() for record in caplog.records]


def test_lines_of_mostly_unknown_tokens_have_one_warning(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["ein mann", "xyz", "", "ein xyz zyx", "rot xyz", "xyz ein zyx"]
    (said,) = warnings(translator, caplog, lines, buffer_size=2)
    assert said.startswith("3 lines (2, 4, 6): most tokens are unknown to the model; check that this is text in de")


def test_lines_in_the_target_language_have_one_warning(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    (said,) = warnings(translator, caplog, ["ein mann", ENGLISH, "rot"])
    assert said == ("1 line (2): the text looks like en, the target language; the model translates from de to en")


def test_a_long_list_of_lines_is_cut_off(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    (said,) = warnings(translator, caplog, ["xyz"] * 1234)
    assert said.startswith("1,234 lines (1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 1,224 more): ")


def test_good_lines_have_none_and_the_next_input_starts_afresh(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(warnings(translator, caplog, ["xyz"])) == 1
    assert warnings(translator, caplog, ["ein mann", "zwei hunde", "rot"]) == []
