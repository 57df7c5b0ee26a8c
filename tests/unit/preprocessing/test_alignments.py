"""Word alignments: from lines of pairs of words to pairs of pieces beside the sentences of a corpus."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmt.data.corpus.folder
from nmt.config.choices import InvalidText
from nmt.config.preprocessing import FilterConfig
from nmt.data.corpus.folder import Corpus, chain
from nmt.data.tokenizers.piece_lists import CharConfig, WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import DataError, UsageError
from nmt.preprocessing import alignments, encoding
from nmt.preprocessing.alignments import parse
from nmt.storage.files import Verify
from tests.unit.preprocessing.small_text import SOURCE, TARGET, Text, write

# "the house is red" and "Haus ist rot": "the" and "house" belong to "Haus".
PAIRS = ["0-0 1-0 2-1 3-2"] * len(SOURCE)


@pytest.fixture
def text(tmp_path: Path) -> Text:
    text = Text(tmp_path)
    write(tmp_path / "train.align", PAIRS)
    return text


def aligned(corpus: Corpus, split: str = "train") -> list[list[list[int]]]:
    found = corpus.split(split)
    assert found.alignments is not None
    return [found.alignments[index].tolist() for index in range(len(found))]


def test_a_line_holds_pairs_of_numbers() -> None:
    assert parse("0-0 12-3\t1-1 ") == [(0, 0), (12, 3), (1, 1)]
    assert parse("") == []


@pytest.mark.parametrize("item", ["3", "3-", "-3", "1_2", "a-b", "1-2-3", "1.0-2", "\u0661-\u0662", "--1-2"])
def test_anything_else_is_no_pair(item: str) -> None:
    with pytest.raises(ValueError, match="is not a pair of word numbers such as 3-4"):
        parse(f"0-0 {item}")


def test_pairs_of_words_are_those_of_the_file(text: Text) -> None:
    corpus, _ = text.make(align_suffix="align")
    assert aligned(corpus) == [[[0, 0], [1, 0], [2, 1], [3, 2]]] * len(SOURCE)


def test_every_piece_of_a_word_belongs_to_every_piece_of_its_partners(text: Text) -> None:
    text.write("train", ["ab c"], ["xyz w"])
    write(text.folder / "train.align", ["0-0 1-1 0-0"])
    corpus, _ = text.make(align_suffix="align", tokenizer=CharConfig())
    of_first = [[source, target] for target in range(3) for source in range(2)]
    of_second = [[source, target] for target in (3, 4) for source in (2, 3)]  # a space belongs to the word after it
    assert aligned(corpus) == [[*of_first, *of_second]]


@pytest.mark.parametrize(
    "tokenizer",
    [BpeConfig(vocab_size=40, hard_vocab_limit=False), CharConfig(), WordsConfig()],
    ids=lambda config: type(config).__name__,
)
def test_pieces_of_aligned_words_spell_these_words(tokenizer: Any, text: Text) -> None:
    # a no-break space is no end of a word, spaces at either end belong to no word of their own
    text.write("train", [*SOURCE, "  the  red\u00a0house "], [*TARGET, " das  rote Haus"])
    write(text.folder / "train.align", [*PAIRS, "0-0 1-2"])
    corpus, _ = text.make(align_suffix="align", tokenizer=tokenizer)
    train = corpus.split("train")
    assert train.alignments is not None
    for index, wanted in ((0, ("the house", "Haus")), (9, ("the", "das"))):
        pairs = train.alignments[index]
        first = pairs[pairs[:, 1] == pairs[0, 1]]  # the sources of the first target piece
        decoded = [
            tokenizer_of.decode(sentence[sorted(set(positions.tolist()))].tolist()).strip()
            for tokenizer_of, sentence, positions in (
                (corpus.pair.source, train.source(index), first[:, 0]),
                (corpus.pair.target, train.target(index), pairs[np.isin(pairs[:, 0], first[:, 0])][:, 1]),
            )
        ]
        assert tuple(decoded) == wanted


def test_alignments_of_dropped_pairs_are_dropped_with_them(text: Text) -> None:
    source, target = list(SOURCE), list(TARGET)
    source[1], target[3] = "", "x " * 20
    text.write("train", source, target)
    numbered = [f"{line % 4}-{line % 3}" for line in range(len(SOURCE))]
    numbered[1] = ""
    write(text.folder / "train.align", numbered)
    corpus, _ = text.make(align_suffix="align", filters=FilterConfig(max_length=10))
    kept = [line for line in range(len(SOURCE)) if line not in (1, 3)]
    assert aligned(corpus) == [[[line % 4, line % 3]] for line in kept]


@pytest.mark.parametrize("lines", [1, 2, 4, 100])
def test_the_size_of_a_chunk_changes_nothing(lines: int, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignments, "_CHUNK", lines)
    monkeypatch.setattr(encoding, "CHUNK_LINES", lines)
    corpus, _ = text.make(align_suffix="align")
    assert aligned(corpus) == [[[0, 0], [1, 0], [2, 1], [3, 2]]] * len(SOURCE)


def test_other_splits_have_alignments_if_their_file_is_there(text: Text) -> None:
    prefix = f"{text.folder}/valid"
    write(text.folder / "other.en", SOURCE[:2])
    write(text.folder / "other.de", TARGET[:2])
    write(text.folder / "other.align", ["3-2", ""])
    corpus, _ = text.make(align_suffix="align", validpref=prefix, testpref=f"{text.folder}/other")
    assert corpus.split("valid").alignments is None
    assert aligned(corpus, "test") == [[[3, 2]], []]


def test_a_line_that_is_left_out_loses_its_alignments(text: Text) -> None:
    (text.folder / "bad.en").write_bytes("\n".join(SOURCE[:2]).encode().replace(b"house", b"h\xffuse", 1) + b"\n")
    write(text.folder / "bad.de", TARGET[:2])
    write(text.folder / "bad.align", PAIRS[:2])
    corpus, _ = text.make(
        align_suffix="align", testpref=f"{text.folder}/bad", on_invalid_utf8=InvalidText.skip, validpref=None
    )
    assert aligned(corpus, "test") == [[], [[0, 0], [1, 0], [2, 1], [3, 2]]]


def test_sentences_whose_pieces_cross_words_lose_their_alignments_and_are_counted(
    text: Text, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alignments, "_WORD", alignments.re.compile("[^ \t]+"))  # without their spaces
    with caplog.at_level(logging.WARNING, logger="nmt"):
        corpus, _ = text.make(align_suffix="align", tokenizer=CharConfig())
    assert aligned(corpus) == [[]] * len(SOURCE)
    assert "train: dropped the alignments of 9 pairs" in caplog.text


def test_alignments_are_part_of_the_fingerprint_and_of_the_manifest(text: Text) -> None:
    without, _ = text.make()
    one, _ = text.make(align_suffix="align", destdir=f"{text.folder}/one")
    write(text.folder / "train.align", [*PAIRS[1:], "0-0"])
    other, _ = text.make(align_suffix="align", destdir=f"{text.folder}/other")
    assert len({corpus.fingerprint("train") for corpus in (without, one, other)}) == 3
    manifest = json.loads((one.folder / "manifest.json").read_text(encoding="utf-8"))
    assert {"train.alignments.npy", "train.alignment-offsets.npy"} <= manifest["files"].keys()
    assert [Path(facts["path"]).name for facts in manifest["text"]] == ["train.en", "train.de", "train.align"]
    assert without.split("train").alignments is None


def test_corpora_are_chained_with_their_alignments_if_all_have_them(text: Text) -> None:
    without, _ = text.make()
    one, _ = text.make(align_suffix="align", destdir=f"{text.folder}/one")
    write(text.folder / "train.align", ["3-0"] * len(SOURCE))
    other, _ = text.make(align_suffix="align", destdir=f"{text.folder}/other")
    both = chain([corpus.split("train") for corpus in (one, other)])
    assert both.alignments is not None
    assert both.alignments[8].tolist() == [[0, 0], [1, 0], [2, 1], [3, 2]]
    assert both.alignments[9].tolist() == both.alignments[17].tolist() == [[3, 0]]
    assert chain([corpus.split("train") for corpus in (one, without)]).alignments is None


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("train.alignments.npy", [4], "sentence 0 has a pair with position 4, but only 4 tokens"),
        ("train.alignments.npy", [-1], "sentence 0 has a pair with position -1"),
        ("train.alignment-offsets.npy", [1], "do not divide the 72 stored numbers"),
        ("train.alignment-offsets.npy", [0, 1], "does not hold alignments of 9 sentences"),
    ],
)
def test_arrays_that_do_not_fit_the_sentences_are_damaged(
    name: str, values: list[int], complaint: str, text: Text
) -> None:
    corpus, _ = text.make(align_suffix="align")
    array = np.load(corpus.folder / name).astype(np.int64)
    array[: len(values)] = values
    np.save(corpus.folder / name, array)
    with pytest.raises(DataError, match=complaint):
        corpus.split("train")


def test_of_a_large_corpus_the_pairs_of_a_sentence_are_checked_when_they_are_read(
    text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, _ = text.make(align_suffix="align")
    monkeypatch.setattr(nmt.data.corpus.rows, "LARGE", 1)
    sound = [pairs.tolist() for pairs in map(corpus.split("train").alignments.__getitem__, range(2))]
    path = corpus.folder / "train.alignments.npy"
    array = np.load(path)
    array[0] = 99
    np.save(path, array)
    damaged = corpus.split("train").alignments
    first = next(number for number, pairs in enumerate(sound) if pairs)
    with pytest.raises(DataError, match=f"sentence {first} has a pair with position 99"):
        damaged[first]
    assert damaged[1 - first].tolist() == sound[1 - first]


def test_a_flipped_byte_of_the_offsets_is_found_at_once_and_one_of_the_pairs_on_demand(text: Text) -> None:
    corpus, _ = text.make(align_suffix="align")
    for name, verify in (("train.alignment-offsets.npy", Verify.fast), ("train.alignments.npy", Verify.full)):
        path = corpus.folder / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(DataError, match=f"{name} is damaged"):
            Corpus.open(corpus.folder, verify)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"align_suffix": ""}, "--align-suffix : give the suffix"),
        ({"align_suffix": "a/b"}, "--align-suffix a/b"),
        ({"align_suffix": "de"}, "--align-suffix de"),
        ({"align_suffix": "align", "only_source": True}, "--align-suffix and --only-source exclude each other"),
    ],
)
def test_a_suffix_that_cannot_be_one_is_refused(options: dict[str, Any], complaint: str, text: Text) -> None:
    with pytest.raises(UsageError, match=complaint):
        text.make(**options)
