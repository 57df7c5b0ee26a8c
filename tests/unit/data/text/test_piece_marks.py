"""Text in pieces of subword-nmt or sentencepiece: joined to words, and recognized for what it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.choices import PieceMarks
from nmt.data.text.piece_marks import SAMPLE_LINES, joined, joined_lines, recognized
from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.sentencepiece import BpeConfig

SUBWORD, SENTENCE = PieceMarks.subword_nmt, PieceMarks.sentencepiece
RAW = ["the house is old .", "two dogs run", "a house , a tree", "snow"]


@pytest.mark.parametrize(
    ("marks", "line", "expected"),
    [
        (SUBWORD, "ein hau@@ s steht", "ein haus steht"),
        (SUBWORD, "hau@@ s@@ meis@@ ter", "hausmeister"),
        (SUBWORD, "ein hau@@", "ein hau"),  # a translation that ends within a word
        (SUBWORD, "ein hau@@ ", "ein hau"),
        (SUBWORD, "well @-@ known user@@host @@x", "well @-@ known user@@host @@x"),
        (SUBWORD, "a  b", "a  b"),
        (SUBWORD, "", ""),
        (SENTENCE, "\u2581ein \u2581hau s \u2581steht", "ein haus steht"),
        (SENTENCE, "\u2581 ein \u2581hau s", "ein haus"),
        (SENTENCE, "hau s", "haus"),
        (SENTENCE, "\u2581a \u2581@-@ \u2581b", "a @-@ b"),
        (SENTENCE, "", ""),
        (PieceMarks.none, "hau@@ s \u2581x ", "hau@@ s \u2581x "),
    ],
)
def test_pieces_become_words(marks: PieceMarks, line: str, expected: str) -> None:
    assert joined(line, marks) == expected


WORDS = st.lists(st.lists(st.text("abc.@-", min_size=1, max_size=4), min_size=1, max_size=3), min_size=1, max_size=6)


@given(WORDS)
def test_words_that_were_cut_anywhere_come_back(words: list[list[str]]) -> None:
    whole = " ".join("".join(pieces) for pieces in words)
    assert joined(" ".join(f"\u2581{' '.join(pieces)}" for pieces in words), SENTENCE) == whole
    if not any(piece.endswith("@") for pieces in words for piece in pieces):
        assert joined(" ".join("@@ ".join(pieces) for pieces in words), SUBWORD) == whole


@pytest.mark.parametrize("also", [[], ["\u2581a"], ["a\u2581b \u2581 c"]])
def test_a_text_that_sentencepiece_did_not_cut_keeps_its_spaces(also: list[str]) -> None:
    assert joined_lines([*RAW, *also], SENTENCE) == [*RAW, *also]


def test_a_line_without_a_mark_is_joined_with_the_rest_of_its_text() -> None:
    assert joined_lines(["\u2581ein \u2581hau s", "hau s"], SENTENCE) == ["ein haus", "haus"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (RAW, PieceMarks.none),
        ([], PieceMarks.none),
        (["", " ", None], PieceMarks.none),
        ([*RAW * 20, "ein hau@@ s"], SUBWORD),
        ([*RAW * 100, "ein hau@@ s"], PieceMarks.none),  # one line of 401
        (["ends in a mark@@"], SUBWORD),
        (["a @-@ b", "@@ -1,3 +1,3 @@", "user@@host @@"], PieceMarks.none),
        (["\u2581ein \u2581hau s", "\u2581rot", "", None], SENTENCE),
        (["\u2581 rot", "ein \u2581hau s"], SENTENCE),
        ([*RAW, "\u2581\u2582\u2583 rising"], PieceMarks.none),
        (["a\u2581b", "c\u2581d"], PieceMarks.none),
    ],
)
def test_text_that_was_cut_is_recognised(lines: list[str | None], expected: PieceMarks) -> None:
    assert recognized(lines)[0] is expected


def test_what_is_recognised_is_counted_without_blank_lines() -> None:
    assert recognized(["hau@@ s", "", "rot", None, "blau@@ er hau@@ s"]) == (PieceMarks.subword_nmt, 2, 3)


def test_a_sample_of_a_long_text_is_looked_at() -> None:
    lines = iter(["rot"] * (SAMPLE_LINES + 5))
    assert recognized(lines)[2] == SAMPLE_LINES and len(list(lines)) == 5


def test_what_sentencepiece_itself_cuts_is_recognised_and_comes_back() -> None:
    text = [f"{one} {two}" for one in RAW for two in RAW]
    tokenizer = tokenizers.build(BpeConfig(vocab_size=40)).train(text, 1)
    cut = [" ".join(tokenizer.pieces(ids.tolist())) for ids in tokenizer.encode(text)]
    assert cut != text and recognized(cut)[0] is SENTENCE
    assert joined_lines(cut, SENTENCE) == text
