"""What a word is, where it stands in its line, and which words two texts have in common."""

from __future__ import annotations

import pytest

from nmt.comparing.words import Cutter, unmatched_words
from nmt.errors import UsageError
from nmt.scoring import TextOptions
from nmt.scoring.unspaced import spaced


def cutter(tokenize: str = "13a", lowercase: bool = False) -> Cutter:
    return Cutter.of(TextOptions(tokenize, lowercase))


@pytest.mark.parametrize(
    ("tokenize", "line", "words"),
    [
        ("13a", 'He said: "No, thanks."', ["He", "said", ":", '"', "No", ",", "thanks", ".", '"']),
        ("13a", "a well-known 1,000", ["a", "well-known", "1,000"]),
        ("none", "No, thanks.", ["No,", "thanks."]),
        ("char", "a b", ["a", "b"]),
        ("13a", "\u732b\u304c\u597d\u304d NMT\u3002", ["\u732b", "\u304c", "\u597d", "\u304d", "NMT\u3002"]),
        ("zh", "\u732b\u597d NMT\u3002", ["\u732b", "\u597d", "NMT", "\u3002"]),
        ("13a", "  ", []),
    ],
)
def test_words_are_those_of_the_tokenizer_and_letters_of_writings_without_spaces(
    tokenize: str, line: str, words: list[str]
) -> None:
    assert list(cutter(tokenize).words(line)) == words


def test_lower_case_is_that_of_the_metric() -> None:
    assert cutter(lowercase=True).words("Der Hund.") == ("der", "hund", ".")


def test_marks_stay_with_the_letter_that_they_belong_to() -> None:
    assert spaced("a \u0e17\u0e35\u0e48b").split() == ["a", "\u0e17\u0e35\u0e48", "b"]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(
    ("tokenize", "line", "pieces"),
    [
        ("13a", " Ein  Hund, der (laut) bellt. ", [" Ein", "  Hund", ",", " der", " (", "laut", ")", " bellt", ". "]),
        ("13a", "\u4ed6\u559c\u6b22 <b>", ["\u4ed6", "\u559c", "\u6b22", " <", "b", ">"]),
        ("char", "a b", ["a", " b"]),
        ("none", "\u2581a b", ["\u2581a", " b"]),
        ("13a", "", []),
        ("13a", "  ", []),
    ],
)
def test_pieces_are_words_with_what_stands_before_them(
    tokenize: str, line: str, pieces: list[str], lowercase: bool
) -> None:
    ((words, found),) = cutter(tokenize, lowercase).pieces([line])
    assert list(found) == pieces and len(words) == len(found)
    assert "".join(found) == (line if pieces else "")


def test_where_the_tokenizer_changes_a_line_words_stand_between_spaces_in_all_of_them() -> None:
    entity, plain = cutter().pieces(["I said &quot;no&quot; .", "I said no."])
    assert entity == (("I", "said", "&quot;no&quot;", "."), ("I", " said", " &quot;no&quot;", " ."))
    assert plain == (("I", "said", "no."), ("I", " said", " no."))


def test_letters_that_lower_case_makes_longer_leave_the_line_whole() -> None:
    ((_, pieces),) = cutter(lowercase=True).pieces(["\u0130stanbul, ja"])
    assert pieces == ("\u0130stanbul,", " ja")


@pytest.mark.parametrize(
    ("one", "other", "in_one", "in_other"),
    [
        ("the cat sat", "the cat sat", (), ()),
        ("the black cat", "the cat", (1,), ()),
        ("a b c", "x y", (0, 1, 2), (0, 1)),
        ("x we two now", "now we two y", (0, 3), (0, 3)),
        ("a b c d", "c d a b", (2, 3), (0, 1)),
        ("", "a", (), (0,)),
        ("no no", "no", (1,), ()),
    ],
)
def test_words_that_the_other_text_does_not_have_there(
    one: str, other: str, in_one: tuple[int, ...], in_other: tuple[int, ...]
) -> None:
    assert unmatched_words(one.split(), other.split()) == (in_one, in_other)


def test_a_tokenizer_that_is_not_installed_is_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="unknown tokenizer '13b'"):
        cutter("13b")
