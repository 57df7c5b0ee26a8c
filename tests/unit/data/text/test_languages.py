"""Which language a line looks like."""

from __future__ import annotations

import pytest

from nmt.data.text.languages import looks_like

GERMAN = "Ein Mann fährt mit dem Fahrrad durch die Stadt."
ENGLISH = "A man rides a bicycle through the town with his dog."
FRENCH = "Un homme fait du vélo dans la rue avec une femme."
RUSSIAN = "Мужчина едет на велосипеде по городу."
CHINESE = "一个男人骑着自行车"


@pytest.mark.parametrize(
    ("text", "other", "own"),
    [
        (GERMAN, "de", "en"),
        (ENGLISH, "en", "de"),
        (FRENCH, "fr", "en_XX"),
        (RUSSIAN, "ru", "en"),
        (CHINESE, "zh", "en"),
    ],
)
def test_a_line_in_the_other_language_is_found(text: str, other: str, own: str) -> None:
    assert looks_like(text, other, own)
    assert not looks_like(text, own, other)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (ENGLISH, "de"),
        ("Die Hard", "de"),
        ("He said: der Hund und die Katze!", "de"),
        ("Berlin 2024 Siemens AG", "de"),
        ("", "de"),
        ("ПК", "ru"),
        ("the Cyrillic word Москва", "ru"),
        (GERMAN, "xx"),
        ("一", "zh"),
    ],
)
def test_names_short_lines_and_unknown_languages_are_not_judged(text: str, other: str) -> None:
    assert not looks_like(text, other, "en")


def test_languages_of_one_script_without_word_lists_are_not_judged() -> None:
    assert not looks_like(RUSSIAN, "ru", "uk") and not looks_like(CHINESE, "zh", "ja")
