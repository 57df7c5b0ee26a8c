"""Text that was cut by subword-nmt or sentencepiece before it is preprocessed: what is said of it, and what is recorded."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from nmt.config.choices import PieceMarks
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import CharConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig, UnigramConfig
from tests.unit.preprocessing.small_text import SOURCE, TARGET, Text

NONE, SUBWORD, SENTENCE = PieceMarks.none, PieceMarks.subword_nmt, PieceMarks.sentencepiece


def cut(lines: list[str], marks: PieceMarks) -> list[str]:
    """Words of more than three letters in two pieces, as if such a program had cut them."""
    go_on = "@@ " if marks is SUBWORD else " "
    begin = "\u2581" if marks is SENTENCE else ""
    words = [[word[:3] + go_on + word[3:] if len(word) > 3 else word for word in line.split()] for line in lines]
    return [" ".join(begin + word for word in line) for line in words]


@pytest.fixture
def text(tmp_path: Path) -> Text:
    """The target is cut by subword-nmt, the source is not."""
    made = Text(tmp_path)
    made.write("train", SOURCE, cut(TARGET, SUBWORD))
    return made


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def marks_of(corpus: Corpus) -> tuple[PieceMarks, PieceMarks]:
    return corpus.pair.source.marks, corpus.pair.target.marks


def test_the_side_that_is_cut_is_named_and_recorded(text: Text, caplog: pytest.LogCaptureFixture) -> None:
    corpus, _ = text.make()
    assert marks_of(corpus) == (NONE, SUBWORD)
    (warning,) = warnings(caplog)
    assert f"{text.folder}/train.de is already segmented by subword_nmt ('@@ ' in 9 of 9 lines)" in warning
    assert "join them into words" in warning and "--pieces none" in warning
    ids = corpus.split("train").target(0).tolist()
    assert corpus.pair.target.decode(ids) == TARGET[0]


def test_both_sides_may_be_cut_each_in_its_way(text: Text, caplog: pytest.LogCaptureFixture) -> None:
    text.write("train", cut(SOURCE, SENTENCE), cut(TARGET, SUBWORD))
    corpus, _ = text.make()
    assert marks_of(corpus) == (SENTENCE, SUBWORD)
    assert [one.split(" is already segmented")[0] for one in warnings(caplog)] == [
        f"{text.folder}/train.{side}" for side in ("en", "de")
    ]


def test_a_joint_vocabulary_records_it_once(text: Text) -> None:
    text.write("train", cut(SOURCE, SUBWORD), cut(TARGET, SUBWORD))
    corpus, _ = text.make(joined_dictionary=True)
    assert marks_of(corpus) == (SUBWORD, SUBWORD) and corpus.pair.source is corpus.pair.target


@pytest.mark.parametrize("marks", [SUBWORD, SENTENCE])
def test_a_joint_vocabulary_joins_what_its_target_shows(text: Text, marks: PieceMarks) -> None:
    """A raw target keeps its spaces though the source was cut."""
    text.write("train", cut(SOURCE, marks), TARGET)
    corpus, _ = text.make(joined_dictionary=True)
    assert marks_of(corpus) == (NONE, NONE)
    assert corpus.pair.target.decode(corpus.split("train").target(0).tolist()) == TARGET[0]


def test_raw_text_gives_no_warning_and_no_record(text: Text, caplog: pytest.LogCaptureFixture) -> None:
    text.write("train", SOURCE, TARGET)
    corpus, _ = text.make()
    assert marks_of(corpus) == (NONE, NONE) and not warnings(caplog)


@pytest.mark.parametrize("tokenizer", [BpeConfig(vocab_size=60), UnigramConfig(vocab_size=22), CharConfig()])
def test_text_that_is_cut_twice_gets_a_warning_that_says_what_to_do(
    tokenizer: Any, text: Text, caplog: pytest.LogCaptureFixture
) -> None:
    corpus, _ = text.make(tokenizer=tokenizer)
    assert marks_of(corpus) == (NONE, NONE)
    (warning,) = warnings(caplog)
    assert "train.de is already segmented by subword_nmt" in warning
    assert "segments it again; give raw text, or keep its tokens with tokenizer=words" in warning


def test_marks_that_are_given_are_not_looked_for(text: Text, caplog: pytest.LogCaptureFixture) -> None:
    assert text.config.pieces is None
    corpus, _ = text.make(pieces=NONE)
    assert marks_of(corpus) == (NONE, NONE) and not warnings(caplog)
    corpus, _ = text.make(pieces=SENTENCE, destdir=f"{text.folder}/other")
    assert marks_of(corpus) == (SENTENCE, SENTENCE) and not warnings(caplog)
    text.make(pieces=SUBWORD, tokenizer=CharConfig(), destdir=f"{text.folder}/third")
    assert "segments it again" in warnings(caplog)[0]


def test_a_given_list_of_pieces_joins_as_the_text_shows(text: Text) -> None:
    (text.folder / "dict.txt").write_text("Hau@@ 9\ns 9\nist 9\nrot 3\n", encoding="utf-8")
    corpus, _ = text.make(tgtdict=f"{text.folder}/dict.txt")
    assert marks_of(corpus) == (NONE, SUBWORD)


def test_a_given_corpus_hands_its_marks_on(text: Text) -> None:
    known, _ = text.make()
    text.write("valid", ["the house"], ["rot"])  # too little to show any
    given = {"srcdict": str(known.folder), "tgtdict": str(known.folder), "trainpref": None}
    corpus, _ = text.make(destdir=f"{text.folder}/valid-only", validpref=f"{text.folder}/valid", **given)
    assert marks_of(corpus) == (NONE, SUBWORD)
    (text.folder / "valid.de").unlink()
    only_source = {"only_source": True, "target_lang": "", "validpref": f"{text.folder}/valid"}
    corpus, _ = text.make(destdir=f"{text.folder}/source-only", **given, **only_source)
    assert marks_of(corpus) == (NONE, SUBWORD)


def test_text_without_a_record_of_its_vocabulary_is_looked_at(text: Text) -> None:
    known, _ = text.make(pieces=NONE)
    corpus, _ = text.make(destdir=f"{text.folder}/again", srcdict=str(known.folder), tgtdict=str(known.folder))
    assert marks_of(corpus) == (NONE, SUBWORD)
