"""Which words of a line its pieces stand for, whatever cuts the line."""

from __future__ import annotations

import importlib.util
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.text.words import spans_of_texts, words, words_of_spans
from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig
from nmt.data.tokenizers.piece_lists import CharConfig, WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig, UnigramConfig
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.preprocessing.alignments import _WORD as WORD_OF_PREPROCESS
from tests.unit.data.tokenizers.test_tokenizers import CONFIGS, HOSTILE, IMPORTED, TEXT, train


@pytest.fixture(scope="module", params=[*CONFIGS, *IMPORTED])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    if request.param in CONFIGS:
        return train(CONFIGS[request.param])
    return IMPORTED[request.param](tmp_path_factory.mktemp("imported"))


def of_pieces(tokenizer: Tokenizer, line: str) -> list[list[int]]:
    """The words of each piece."""
    return [list(numbers) for numbers in words_of_spans(line, tokenizer.spans(line))]


@pytest.mark.parametrize("line", ["a b", " a\tb ", "a\u00a0b", "", "\t", "a\u3000b  c"])
def test_words_are_those_of_the_alignments_that_corpora_are_made_with(line: str) -> None:
    assert words(line) == [word.strip(" \t") for word in WORD_OF_PREPROCESS.findall(line)]


@pytest.mark.parametrize(
    ("line", "spans", "found"),
    [
        ("ab cd", [(0, 2), (3, 5)], [[0], [1]]),
        ("ab cd", [(0, 1), (1, 2), (2, 5)], [[0], [0], [1]]),  # with the space before it
        ("ab cd", [(0, 3), (3, 5)], [[0], [1]]),  # with the space after it
        ("ab cd", [(0, 5)], [[0, 1]]),  # across words
        ("ab\tcd e", [(0, 5), (6, 7)], [[0, 1], [2]]),
        ("ab cd ", [(2, 3), (5, 6)], [[1], []]),  # nothing but space: of the next word, if there is one
        ("ab cd", [(1, 1), (2, 2), (5, 5)], [[0], [1], []]),  # empty ones
        ("", [], []),
    ],
)
def test_a_span_belongs_to_the_words_that_it_touches(line: str, spans: Any, found: list[list[int]]) -> None:
    assert [list(numbers) for numbers in words_of_spans(line, spans)] == found


@pytest.mark.parametrize("line", TEXT[:8])
def test_each_word_has_the_pieces_that_it_has_alone(tokenizer: Tokenizer, line: str) -> None:
    """An independent way to say so, where pieces do not depend on the words beside theirs."""
    lengths = [len(ids) for ids in tokenizer.encode(words(line))]
    if isinstance(tokenizer.config, CharConfig):  # a space is a piece, and belongs to the word after it
        lengths = [lengths[0], *(length + 1 for length in lengths[1:])]
    ends = list(accumulate(lengths))
    assert len(of_pieces(tokenizer, line)) == ends[-1]
    expected = [[word] for word, (begin, end) in enumerate(pairwise([0, *ends])) for _ in range(begin, end)]
    assert of_pieces(tokenizer, line) == expected


@given(
    line=st.text(st.sampled_from("ab \t\u00a0\u3000ﬁ½…日本\u200b'\"&@é") | st.characters(codec="utf-8"), max_size=20)
)
def test_there_is_a_span_for_each_piece_and_words_go_on(tokenizer: Tokenizer, line: str) -> None:
    line = line.replace("\n", " ")
    found = of_pieces(tokenizer, line)
    assert len(found) == len(tokenizer.encode([line])[0])
    flat = [word for of_piece in found for word in of_piece]
    assert flat == sorted(flat) and set(flat) <= set(range(len(words(line))))


@pytest.mark.parametrize("line", HOSTILE)
def test_what_looks_like_a_mark_or_a_special_is_text(tokenizer: Tokenizer, line: str) -> None:
    found = of_pieces(tokenizer, line)
    assert len(found) == len(tokenizer.encode([line])[0])
    if not isinstance(tokenizer.config, (BpeConfig, UnigramConfig, SentencePieceListConfig)):
        assert {word for of_piece in found for word in of_piece} == set(range(len(words(line))))


def by_words(tokenizer: Tokenizer, line: str) -> list[str]:
    """Of each word the pieces that belong to it, joined."""
    pieces = tokenizer.pieces(tokenizer.encode([line])[0].tolist())
    joined = [""] * len(words(line))
    for piece, numbers in zip(pieces, of_pieces(tokenizer, line)):
        for number in numbers:
            joined[number] += piece.replace("\u2581", "").replace("@@", "")
    return joined


@pytest.mark.parametrize("kind", [BpeConfig, UnigramConfig])
@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("das ﬁel  auf ½ ein…\tja", ["das", "fiel", "auf", "1\u20442", "ein...", "ja"]),
        ("eins\u00a0zwei drei", ["einszwei", "drei"]),  # the space within a word is rewritten to one that cuts pieces
        ("da \u200b ja", ["da", "", "ja"]),  # a word that normalisation takes away
        ("\u00a8 ja", ["\u0308", "ja"]),  # one character that becomes a space and another
        ("  ein ja ", ["ein", "ja"]),
    ],
)
def test_words_keep_their_pieces_where_characters_are_rewritten(kind: Any, line: str, written: list[str]) -> None:
    text = [*TEXT, *(["\u2044 12 . \u0308 ja auf das fiel eins zwei drei"] * 20)]
    tokenizer = train(kind(vocab_size=60, hard_vocab_limit=False), text)
    assert by_words(tokenizer, line) == written


def test_bytes_of_a_character_belong_to_its_word() -> None:
    tokenizer = train(BpeConfig(vocab_size=380, byte_fallback=True))
    found = of_pieces(tokenizer, "Haus 日本 ja")
    assert [found.count([word]) for word in (0, 1, 2)][1] == 7  # a space, and three bytes of each character
    assert found == sorted(found)


def test_pieces_may_go_across_words() -> None:
    line = "ein\tHaus am See"
    tokenizer = tokenizers.build(WordsConfig()).train(iter([line]), 1)
    assert of_pieces(tokenizer, line) == [[0, 1], [2], [3]]


def test_a_language_token_stands_before_the_words(tmp_path: Path) -> None:
    trained = train(CONFIGS["bpe"])
    trained.save(tmp_path, "joint")
    pieces = [*trained.vocabulary.pieces[4:], ">>deu<<"]
    config = SentencePieceListConfig(language_tokens=True)
    tokenizer = SentencePieceList(config, (tmp_path / "joint.model").read_bytes(), pieces)
    found = of_pieces(tokenizer, ">>deu<< ein Haus")
    assert len(found) == len(tokenizer.encode([">>deu<< ein Haus"])[0])
    assert found[0] == [0] and {word for numbers in found[1:] for word in numbers} == {1, 2}


@pytest.mark.skipif(importlib.util.find_spec("sacremoses") is None, reason="sacremoses is not installed")
def test_tokens_of_moses_belong_to_the_words_that_they_were_cut_from() -> None:
    config = BpeCodesConfig(moses=True, language="en", normalize_punctuation=True)
    codes = b"#version: 0.2\nt h\nth e</w>\n"
    line = "Peter's e-mail: \u201eja\u201c & no  (3%)."
    cutting = BpeCodes(config, codes, [])
    tokenizer = BpeCodes(config, codes, sorted(set(cutting.surfaces(line))))
    # Moses writes: Peter &apos;s e @-@ mail : &quot; ja &quot; &amp; no ( 3 % ) .
    assert by_words(tokenizer, line) == ["Peter&apos;s", "e@-@mail:", "&quot;ja&quot;", "&amp;", "no", "(3%)."]


@pytest.mark.parametrize("length", [1, 100, 3000])
def test_long_lines_are_matched_as_short_ones(length: int) -> None:
    """Of 60,000 characters too, for which a single comparison would take hours."""
    line = "".join(f"das \u201eHaus{number}\u201c am See " for number in range(length))
    texts = [text for number in range(length) for text in ("das", '"', f"Haus{number}", '"', "am", "See")]
    expected = [4 * number + word for number in range(length) for word in (0, 1, 1, 1, 2, 3)]
    assert words_of_spans(line, spans_of_texts(line, texts)) == [range(word, word + 1) for word in expected]


@pytest.mark.parametrize(("line", "text"), [("a" * 1000, "b" * 1500), ("", "b" * 700), ("a" * 700 + "b", "b")])
def test_texts_that_have_nothing_in_common_have_spans_all_the_same(line: str, text: str) -> None:
    found = spans_of_texts(line, list(text))
    assert len(found) == len(text) and all(0 <= begin <= end <= len(line) for begin, end in found)


def test_texts_with_other_characters_are_matched_by_what_they_have_in_common() -> None:
    assert spans_of_texts("a b", ["a", "b"]) == [(0, 1), (2, 3)]
    line = "abc \u00e4\u00f6 def"
    assert words_of_spans(line, spans_of_texts(line, ["abc", "ao", "def"])) == [range(1), range(1, 2), range(2, 3)]
    assert spans_of_texts("ab", ["ab", ""]) == [(0, 2), (2, 2)]
