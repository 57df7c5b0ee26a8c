"""Characters and words: tokenizers with a plain list of pieces."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.tokenizers.piece_lists import CharConfig, WordsConfig
from nmt.data.vocabulary import UNK
from nmt.errors import DataError, UsageError


def train(config: Any, lines: list[str]) -> Tokenizer:
    return tokenizers.build(config).train(iter(lines), seed=1)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")))
def test_characters_give_back_exactly_the_text(line: str) -> None:
    tokenizer = train(CharConfig(), [f"x{line}"])
    assert tokenizer.decode(tokenizer.encode([line])[0].tolist()) == line


def test_characters_keep_every_space() -> None:
    tokenizer = train(CharConfig(), ["a b"])
    assert tokenizer.decode(tokenizer.encode(["  a   b "])[0].tolist()) == "  a   b "
    assert tokenizer.pieces(tokenizer.encode(["a b"])[0].tolist()) == ["a", "\u2581", "b"]


def test_only_the_space_separates_words() -> None:
    tokenizer = train(WordsConfig(), ["a b\tc d\u00a0e"])
    assert set(tokenizer.vocabulary.pieces[4:]) == {"a", "b\tc", "d\u00a0e"}
    assert tokenizer.decode(tokenizer.encode([" a  b\tc "])[0].tolist()) == "a b\tc"


def test_the_spelling_of_a_special_is_a_word_like_any_other() -> None:
    tokenizer = train(WordsConfig(), ["</s> a </s>"])
    ids = tokenizer.encode(["</s> <unk> a"])[0].tolist()
    assert ids == [4, UNK, 5]
    assert tokenizer.decode(ids) == "</s> \u2047 a"


def test_pieces_are_ranked_by_count_then_alphabetically() -> None:
    assert train(WordsConfig(), ["b c a", "c"]).vocabulary.pieces[4:] == ("c", "a", "b")


def test_rare_words_and_words_beyond_the_size_are_unknown() -> None:
    lines = ["a a a b b c"]
    assert train(WordsConfig(min_count=2), lines).vocabulary.pieces[4:] == ("a", "b")
    assert train(WordsConfig(vocab_size=5), lines).vocabulary.pieces[4:] == ("a",)


def test_a_count_that_nothing_reaches_is_an_error() -> None:
    with pytest.raises(UsageError, match="min_count=9"):
        train(WordsConfig(min_count=9), ["a b"])


def test_a_size_without_room_for_a_piece_is_refused() -> None:
    with pytest.raises(UsageError, match="vocab_size=4 leaves no room"):
        WordsConfig(vocab_size=4)


@pytest.mark.parametrize(
    ("config", "content", "pieces"),
    [
        (WordsConfig(), "the\nof\n", ("the", "of")),
        (WordsConfig(), "the 120\nof 80\nmadeupword0000 0\n", ("the", "of", "madeupword0000")),
        (WordsConfig(), "<pad>\n<unk>\n<s>\n</s>\nthe\n", ("the",)),
        (WordsConfig(), "5 7\n7\n", ("5", "7")),
        (WordsConfig(), "the\r\nof\r\n", ("the", "of")),
        (CharConfig(), "a\n \n5\n", ("a", " ", "5")),
        (CharConfig(), "a 3\n  12\n</s>\n", ("a", " ")),
    ],
)
def test_a_given_list_of_pieces_is_read_in_its_order(
    config: Any, content: str, pieces: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "dict.txt"
    path.write_bytes(content.encode())
    assert tokenizers.build(config).from_file(path).vocabulary.pieces[4:] == pieces


@pytest.mark.parametrize(
    ("config", "content", "complaint"),
    [
        (WordsConfig(), "the\nof\nthe\n", r"dict.txt:3: 'the' is already in line 1"),
        (WordsConfig(), "the\n\nof\n", r"dict.txt:2: '' must be one word"),
        (WordsConfig(), "the\ntwo words\n", r"dict.txt:2: 'two words' must be one word"),
        (CharConfig(), "a\nab\n", r"dict.txt:2: 'ab' must be one character"),
        (WordsConfig(), "", r"dict.txt is empty"),
    ],
)
def test_a_bad_list_of_pieces_is_refused_with_its_line(
    config: Any, content: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "dict.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=complaint):
        tokenizers.build(config).from_file(path)


def test_specials_in_a_given_list_are_left_out_with_a_notice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "dict.txt"
    path.write_text("<s>\n</s>\nthe\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING, logger="nmt"):
        tokenizers.build(WordsConfig()).from_file(path)
    assert "<s> </s> dropped from the list" in caplog.text


@pytest.mark.parametrize("content", ["", "{}", "[1]", '["a", "a"]', '[""]', "["])
def test_a_damaged_stored_list_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"source\.json is damaged"):
        tokenizers.build(WordsConfig()).load(tmp_path, "source")


def test_a_stored_list_is_plain_json(tmp_path: Path) -> None:
    train(WordsConfig(), ["b a"]).save(tmp_path, "source")
    assert json.loads((tmp_path / "source.json").read_text(encoding="utf-8")) == ["a", "b"]


def test_bytes_that_are_not_text_in_a_list_are_named_without_an_option_that_does_not_apply(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_bytes(b"the\nb\xff\n")
    with pytest.raises(DataError, match=r"dict\.txt:2: bytes that are not UTF-8") as caught:
        tokenizers.build(WordsConfig()).from_file(tmp_path / "dict.txt")
    assert "--on-invalid-utf8" not in str(caught.value)


def test_the_size_of_a_vocabulary_can_be_raised_to_a_multiple_by_pieces_that_no_text_has() -> None:
    words = tokenizers.build(WordsConfig(multiple=8)).train(["a b c d e <unused", "0> a"], seed=1)
    assert (
        len(words.vocabulary) == 16 and len(tokenizers.build(WordsConfig(multiple=3)).train(["a b"], 1).vocabulary) == 6
    )
    assert all(len(ids) == 2 for ids in words.encode([words.vocabulary.pieces[-1]])), "text with a space is cut there"
