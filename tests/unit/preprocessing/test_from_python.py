"""``nmt.preprocess``: data of a Python program becomes the corpus folder that nmt-preprocess makes of its text."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.data.corpus.folder import Corpus
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import OutputError, UsageError
from nmt.preprocessing.preprocess import preprocess as preprocess_files
from nmt.storage.reading import read_json
from tests.tiny_models import in_english, some_lines, tiny_pair

SOURCES = some_lines(200, seed=3)
PAIRS = [(line, in_english(line)) for line in SOURCES]
VALID = [("ein mann", "a man"), ("rot", "red")]


def tokens(corpus: Path, language: str, split: str = "train") -> bytes:
    return (corpus / f"{split}.{language}.tokens.npy").read_bytes()


def test_pairs_and_files_of_text_become_the_corpus_of_the_command(tmp_path: Path) -> None:
    for split, pairs in (("train", PAIRS), ("valid", VALID)):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    languages, train, valid = {"source_lang": "de", "target_lang": "en"}, tmp_path / "train", tmp_path / "valid"
    size: dict[str, Any] = {"tokenizer": "bpe", "vocab_size": 50}
    preprocess_files(trainpref=str(train), validpref=str(valid), destdir=str(tmp_path / "command"), **languages, **size)
    nmt.preprocess(PAIRS, valid=VALID, destdir=tmp_path / "pairs", **languages, **size)
    nmt.preprocess(train, valid=[valid], destdir=tmp_path / "files", **languages, **size)
    for language in ("de", "en"):
        for split in ("train", "valid"):
            expected = tokens(tmp_path / "command", language, split)
            assert (
                tokens(tmp_path / "pairs", language, split) == tokens(tmp_path / "files", language, split) == expected
            )
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_share_is_held_out_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    report = nmt.preprocess(PAIRS, destdir=tmp_path / "a", seed=5)
    assert repr(report) == f"<PreprocessReport {tmp_path / 'a'}: train 190 pairs, valid 10 pairs>"
    assert "held out 10 of 200 pairs for validation, chosen by seed 5; valid= gives other" in caplog.text
    assert read_json(tmp_path / "a" / "manifest.json")["program"]["held_out"] == 10
    read = {split: (tmp_path / "a" / f"{split}.source.txt").read_text().splitlines() for split in ("valid",)}
    assert set(read["valid"]) <= set(SOURCES)
    counts = [nmt.preprocess(PAIRS, destdir=tmp_path / f"{share}", valid_share=share).splits for share in (0.3, 0)]
    assert [[split.kept for split in splits] for splits in counts] == [[140, 60], [200]]
    with pytest.raises(UsageError, match="valid_share=1.5 must be at least 0 and below 1"):
        nmt.preprocess(PAIRS, destdir=tmp_path / "b", valid_share=1.5)


def test_the_default_vocabulary_fits_small_text_and_a_stated_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nmt")
    report = nmt.preprocess(PAIRS, destdir=tmp_path / "a", joined_dictionary=True)
    assert report.source_entries == report.target_entries < 4 * 26
    assert f"joint vocabulary: {report.source_entries} entries instead of 8,000, because" in caplog.text
    with pytest.raises(UsageError, match="tokenizer.vocab_size=5000 is more than this text supports"):
        nmt.preprocess(PAIRS, destdir=tmp_path / "b", vocab_size=5000)
    with pytest.raises(UsageError, match="tokenizer.vocab_size=700 is more than this text supports"):
        nmt.preprocess(PAIRS, destdir=tmp_path / "c", tokenizer=BpeConfig(vocab_size=700))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_existing_tokenizers_are_used_in_either_direction(tmp_path: Path) -> None:
    nmt.preprocess(PAIRS, destdir=tmp_path / "first", source_lang="de", target_lang="en")
    first = LanguagePair.load(tmp_path / "first" / "tokenizer")
    for tokenizer in (first, tmp_path / "first", str(tmp_path / "first")):
        nmt.preprocess(PAIRS[:50], destdir=tmp_path / "again", tokenizer=tokenizer, overwrite=True)
        again = Corpus.open(tmp_path / "again").pair
        assert (again.digest(), again.source_lang) == (first.digest(), "de")
    turned = [(target, source) for source, target in PAIRS]
    nmt.preprocess(turned, destdir=tmp_path / "turned", tokenizer=first, source_lang="en", target_lang="de")
    assert LanguagePair.load(tmp_path / "turned" / "tokenizer").source.vocabulary == first.target.vocabulary
    nmt.preprocess(PAIRS, destdir=tmp_path / "words", tokenizer=tiny_pair())
    assert Corpus.open(tmp_path / "words").pair.one_tokenizer
    with pytest.raises(UsageError, match=r"unknown tokenizer 'bpee' \(did you mean 'bpe'\?\)"):
        nmt.preprocess(PAIRS, destdir=tmp_path / "x", tokenizer="bpee")


def test_an_existing_folder_is_refused_before_the_data_is_read(tmp_path: Path) -> None:
    class Unread(list[Any]):
        def __iter__(self) -> Any:
            reads.append(1)
            return super().__iter__()

    reads: list[int] = []
    nmt.preprocess(PAIRS, destdir=tmp_path / "a")
    with pytest.raises(OutputError, match="exists and is not empty"):
        nmt.preprocess(Unread(PAIRS), destdir=tmp_path / "a")
    assert len(reads) == 2  # for the form of the first item


def test_a_tokenizer_without_a_size_is_not_adapted(tmp_path: Path) -> None:
    assert nmt.preprocess(PAIRS, destdir=tmp_path / "a", tokenizer="char").source_entries > 10


def test_a_python_shell_sees_the_lines_and_a_program_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("nmt").setLevel(logging.NOTSET)
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    nmt.preprocess(PAIRS, valid=[("schnee", "snow")], destdir=tmp_path / "a")
    assert "instead of 8,000" not in capsys.readouterr().err
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    nmt.preprocess(PAIRS, valid=[("schnee", "snow")], destdir=tmp_path / "b")
    assert "instead of 8,000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": PAIRS, "trainpref": "text"}, "preprocess has no option 'trainpref'; give text as data= and valid="),
        ({"data": PAIRS, "pairs": ["de-en"]}, "preprocess has no option 'pairs'"),
        (
            {"data": PAIRS, "weight_field": "w"},
            r"no option 'weight_field'.*, or make a corpus of files first: nmt.prep",
        ),
        ({"data": PAIRS, "vocab_siz": 3}, r"preprocess has no option 'vocab_siz' \(did you mean 'vocab_size'\?\)"),
        ({"data": "text/train"}, "is not a corpus folder, and text needs source_lang= and target_lang="),
        ({"valid": PAIRS}, "preprocess: valid= and valid_share= need pairs or text in data="),
        ({"data": PAIRS[:1]}, "data has a single pair"),
        ({"data": PAIRS, "valid": [("a", 3)]}, r"valid\[0\]: field 'target' holds 3, which is not text"),
    ],
)
def test_wrong_calls_are_one_line_and_leave_nothing(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(nmt.errors.NMTError, match=message):
        nmt.preprocess(**arguments, destdir=tmp_path / "folder" / "corpus")
    assert not list(tmp_path.iterdir())
