"""A corpus folder: what is written is what is read, and damage is noticed before it hurts."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nmt.data.corpus.folder
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.corpus.folder import Corpus, chain, open_corpora
from nmt.data.corpus.rows import ChainedRows, StoredSentences, ragged_writer, sentence_files
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.vocabulary import EOS, Vocabulary
from nmt.errors import DataError, MissingInputError
from nmt.preprocessing.pairs import token_type
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.files import Verify, replace_manifest, sha256, write_json

SOURCE = ["the house is old", "an old house", "the tree"]
TARGET = ["das Haus ist alt", "ein altes Haus", "der Baum"]


def make(folder: Path, name: str = "corpus", source: list[str] = SOURCE, target: list[str] = TARGET) -> Path:
    for split in ("train", "valid"):
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in source), encoding="utf-8")
        (folder / f"{split}.de").write_text("".join(f"{line}\n" for line in target), encoding="utf-8")
    preprocess(
        PreprocessConfig(
            source_lang="en",
            target_lang="de",
            trainpref=f"{folder}/train",
            validpref=f"{folder}/valid",
            destdir=f"{folder}/{name}",
            tokenizer=WordsConfig(),
        )
    )
    return folder / name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path)


def test_sentences_come_back_with_eos_in_their_order(folder: Path) -> None:
    corpus = Corpus.open(folder)
    train = corpus.split("train")
    assert len(train) == 3
    for index, (source, target) in enumerate(zip(SOURCE, TARGET)):
        assert train.source(index)[-1] == train.target(index)[-1] == EOS
        assert corpus.pair.source.decode(train.source(index).tolist()) == source
        assert corpus.pair.target.decode(train.target(index).tolist()) == target


def test_lengths_count_the_eos(folder: Path) -> None:
    train = Corpus.open(folder).split("train")
    assert train.source_lengths.tolist() == [5, 4, 3]
    assert train.target_lengths is not None and train.target_lengths.tolist() == [5, 4, 3]


def test_text_is_kept_of_all_splits_but_the_training_split(folder: Path) -> None:
    corpus = Corpus.open(folder)
    assert corpus.splits == ("train", "valid")
    assert corpus.split("train").sources.text() is None and corpus.split("train").targets.text() is None
    assert corpus.split("valid").sources.text() == SOURCE and corpus.split("valid").targets.text() == TARGET


def test_arrays_are_plain_numpy_files(folder: Path) -> None:
    tokens = np.load(folder / "train.en.tokens.npy", allow_pickle=False)
    offsets = np.load(folder / "train.en.offsets.npy", allow_pickle=False)
    assert tokens.dtype == np.uint16 and offsets.dtype == np.int64
    assert offsets.tolist() == [0, 5, 9, 12] and len(tokens) == 12


def test_an_unknown_split_is_named_with_those_that_exist(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no split 'vald' \(did you mean 'valid'\?\); there are: train, valid"):
        Corpus.open(folder).split("vald")


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    one, same = make(tmp_path, "one"), make(tmp_path, "same")
    other = make(tmp_path, "other", source=[*SOURCE[:2], "the house"])
    prints = [Corpus.open(folder).fingerprint("train") for folder in (one, same, other)]
    assert prints[0] == prints[1] != prints[2]


def test_two_splits_of_equal_content_have_equal_fingerprints(folder: Path) -> None:
    corpus = Corpus.open(folder)
    assert corpus.fingerprint("train") == corpus.fingerprint("valid")


SENTENCES = st.lists(
    hnp.arrays(np.int64, st.integers(0, 6), elements=st.integers(1, 9)).map(lambda ids: np.append(ids, EOS)),
    min_size=1,
    max_size=12,
)


@given(SENTENCES, st.integers(1, 5))
def test_any_sentences_written_in_any_chunks_are_read_again(sentences: list[np.ndarray], chunk: int) -> None:
    vocabulary = Vocabulary("abcdefghij")
    with tempfile.TemporaryDirectory() as name:
        with ragged_writer(*sentence_files(Path(name), "t", "x"), np.uint16) as append:
            for start in range(0, len(sentences), chunk):
                part = sentences[start : start + chunk]
                append(np.concatenate(part), np.array([len(sentence) for sentence in part]))
        stored = StoredSentences(Path(name), "t", "x", vocabulary)
        assert [stored[index].tolist() for index in range(len(sentences))] == [ids.tolist() for ids in sentences]
        assert stored.lengths.tolist() == [len(ids) for ids in sentences]


@pytest.mark.parametrize(("pieces", "dtype"), [(2**16 - 4, np.uint16), (2**16 - 3, np.uint32)])
def test_ids_take_two_bytes_as_long_as_they_fit(pieces: int, dtype: type) -> None:
    assert token_type(Vocabulary(map(str, range(pieces)))) is dtype


def test_every_flipped_byte_is_noticed_by_a_full_check(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.name in ("manifest.json", "report.html"):  # which nothing is read from
            continue
        content = path.read_bytes()
        for position in range(0, len(content), 97):
            path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
            with pytest.raises(DataError):
                Corpus.open(folder, Verify.full)
        path.write_bytes(content)
    Corpus.open(folder, Verify.full)


@pytest.mark.parametrize(
    "name", ["train.en.tokens.npy", "train.de.offsets.npy", "valid.en.txt", "tokenizer/source.json"]
)
@pytest.mark.parametrize("change", [-1, 1])
def test_a_shorter_or_longer_file_is_noticed_at_every_start(name: str, change: int, folder: Path) -> None:
    os.truncate(folder / name, (folder / name).stat().st_size + change)
    with pytest.raises(DataError, match="is damaged"):
        Corpus.open(folder)


def reseal(folder: Path, *names: str) -> None:
    """A manifest that agrees with what was written wrongly."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for name in names:
        manifest["files"][name] = {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
    replace_manifest(folder, manifest)


@pytest.mark.parametrize(
    ("name", "position", "value", "complaint"),
    [
        ("train.en.tokens.npy", 1, 999, r"sentence 1 holds id 999, but the vocabulary has 10 tokens"),
        ("train.en.tokens.npy", 6, 999, r"sentence 2 holds id 999"),
        ("train.en.tokens.npy", 4, 5, "does not end in eos"),
        ("train.en.offsets.npy", 0, 1, "do not divide"),
        ("train.en.offsets.npy", 1, 9, "do not divide"),
        ("train.en.offsets.npy", 3, 11, "do not divide"),
    ],
)
def test_ids_and_offsets_are_checked_when_a_split_is_opened(
    name: str, position: int, value: int, complaint: str, folder: Path
) -> None:
    array = np.load(folder / name)
    array[position] = value
    np.save(folder / name, array)
    reseal(folder, name)
    with pytest.raises(DataError, match=complaint):
        Corpus.open(folder).split("train")


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00", np.zeros((2, 2)).tobytes()])
def test_what_is_no_array_is_refused(content: bytes, folder: Path) -> None:
    path = folder / "train.en.tokens.npy"
    path.write_bytes(content.ljust(path.stat().st_size, b"\0"))
    with pytest.raises(DataError, match=r"tokens\.npy is damaged"):
        Corpus.open(folder).split("train")


@pytest.mark.parametrize("part", ["tokens", "offsets"])
@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<u2', 'fortran_order': False, 'shape': (11,), }(",  # a fault of the tokens of Python
        b"{'descr': '<m8', 'fortran_order': False, 'shape': (4,), }",  # spans of time, one bit away
        b"[" * 110,
    ],
)
def test_an_array_with_a_damaged_header_is_refused(part: str, header: bytes, folder: Path) -> None:
    path = folder / f"train.en.{part}.npy"
    content = path.read_bytes()
    path.write_bytes(content[:10] + header.ljust(117) + content[127:])
    reseal(folder, path.name)
    with pytest.raises(DataError, match=rf"{part}\.npy is damaged"):
        Corpus.open(folder).split("train")


def test_a_manifest_that_lost_a_file_is_refused(folder: Path) -> None:
    """Nothing would be compared with a checksum."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    del manifest["files"]["train.en.tokens.npy"]
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(DataError, match="manifest.json is damaged: its checksum does not match its content"):
        Corpus.open(folder)
    del manifest["checksum"]  # as of earlier versions
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(DataError, match=r"manifest.json is damaged: it does not list train\.en\.tokens\.npy"):
        Corpus.open(folder).split("train")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 5000])
def test_text_with_a_name_that_no_file_has_is_not_missed(path: str, folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["text"][0]["path"] = path
    replace_manifest(folder, manifest)
    assert Corpus.open(folder).splits == ("train", "valid")


def test_a_split_whose_sides_differ_in_number_is_refused(folder: Path) -> None:
    np.save(folder / "train.de.tokens.npy", np.array([EOS], dtype=np.uint16))
    np.save(folder / "train.de.offsets.npy", np.array([0, 1]))
    reseal(folder, "train.de.tokens.npy", "train.de.offsets.npy")
    with pytest.raises(DataError, match="'train' has 3 sources but 1 targets"):
        Corpus.open(folder).split("train")


def test_a_folder_without_manifest_is_no_corpus(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(MissingInputError, match="holds no corpus"):
        Corpus.open(folder)


def test_another_format_is_refused_with_both_versions(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 1', '"format": 7'), encoding="utf-8")
    with pytest.raises(DataError, match="in format 7; .* reads format 1"):
        Corpus.open(folder)


def test_text_that_changed_since_is_mentioned(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="nmt"):
        Corpus.open(folder)
        assert not caplog.records
        (folder.parent / "train.en").write_bytes(b"something else\n")
        Corpus.open(folder)
    assert "train.en has changed since" in caplog.text


def test_text_that_is_gone_is_not_missed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in folder.parent.glob("train.*"):
        path.unlink()
    with caplog.at_level(logging.WARNING, logger="nmt"):
        Corpus.open(folder)
    assert not caplog.records


def test_a_mapped_split_survives_the_replacement_of_its_files(folder: Path) -> None:
    train = Corpus.open(folder).split("train")
    before = train.source(0).tolist()
    (folder / "new").write_bytes(b"x")
    os.replace(folder / "new", folder / "train.en.tokens.npy")
    assert train.source(0).tolist() == before


def test_corpora_of_other_vocabularies_do_not_go_together(tmp_path: Path) -> None:
    one = make(tmp_path, "one")
    other = make(tmp_path, "other", source=["something else", "entirely", "here"])
    assert len(open_corpora([one, str(one)])) == 2
    with pytest.raises(DataError, match=r"other and .*one have different vocabularies"):
        open_corpora([one, other])


def test_chained_splits_are_one_after_the_other(folder: Path) -> None:
    corpus = Corpus.open(folder)
    train, valid = corpus.split("train"), corpus.split("valid")
    both = chain([train, valid, train])
    assert len(both) == 9
    assert [both.source(index).tolist() for index in range(9)] == [
        train.source(index).tolist() for index in range(3)
    ] * 3
    assert both.target(8).tolist() == train.target(2).tolist()
    assert both.source_lengths.tolist() == train.source_lengths.tolist() * 3
    assert both.sources.text() is None
    assert chain([valid, valid]).targets.text() == TARGET * 2
    assert chain([train]) is train


def test_an_index_beyond_a_chain_is_an_error(folder: Path) -> None:
    train = Corpus.open(folder).split("train")
    with pytest.raises(IndexError):
        ChainedRows([train.sources])[3]


def test_text_whose_time_alone_is_new_is_not_mentioned(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = next(folder.parent.rglob("train.en"))
    os.utime(text, ns=(1, 1))
    Corpus.open(folder)
    assert "has changed" not in caplog.text
    text.write_bytes(text.read_bytes()[::-1])
    Corpus.open(folder)
    assert "train.en has changed since" in caplog.text


def of_languages(folder: Path, name: str, languages: tuple[str, str]) -> Path:
    """A corpus whose joint vocabulary is the same for all languages."""
    for language in languages:
        (folder / f"train.{language}").write_text("one two\nthree\n", encoding="utf-8")
    preprocess(
        PreprocessConfig(
            source_lang=languages[0],
            target_lang=languages[1],
            trainpref=f"{folder}/train",
            destdir=f"{folder}/{name}",
            tokenizer=WordsConfig(),
            joined_dictionary=True,
        )
    )
    return folder / name


def test_corpora_of_both_directions_do_not_go_together_although_their_vocabulary_is_one(tmp_path: Path) -> None:
    one, back = of_languages(tmp_path, "one", ("en", "de")), of_languages(tmp_path, "back", ("de", "en"))
    assert Corpus.open(one).pair.digest() == Corpus.open(back).pair.digest()
    with pytest.raises(
        DataError, match="from en to de, .*back in the opposite direction; omit one of them, or make each"
    ):
        open_corpora([one, back])
    with pytest.raises(DataError, match="in the opposite direction"):
        open_corpora([of_languages(tmp_path, "named", ("en_GB", "de_DE")), one, back])


def test_corpora_may_call_their_languages_by_other_names(tmp_path: Path) -> None:
    one, named = of_languages(tmp_path, "one", ("en", "de")), of_languages(tmp_path, "named", ("en", "de_DE"))
    turned_by_half = of_languages(tmp_path, "half", ("de_DE", "en"))
    assert len(open_corpora([one, named])) == len(open_corpora([one, turned_by_half])) == 2


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda text: text.replace(b"\n", b" ", 1), "2 lines instead of 3"),
        (lambda text: text.replace(b" ", b"\n", 1), "4 lines instead of 3"),
        (lambda text: b"a\xff" + text[2:], "byte 1 is not UTF-8"),
    ],
    ids=["a line less", "a line more", "no text"],
)
def test_text_of_the_right_size_is_looked_at_when_it_is_read(
    damage: Callable[[bytes], bytes], complaint: str, folder: Path
) -> None:
    path = folder / "valid.de.txt"
    path.write_bytes(damage(path.read_bytes()))
    split = Corpus.open(folder).split("valid")
    assert split.sources.text() == SOURCE
    with pytest.raises(DataError, match=rf"valid\.de\.txt is damaged: {complaint}"):
        split.targets.text()


def test_a_corpus_folder_of_fairseq_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "dict.en.txt").write_text("house 2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"is a corpus folder of fairseq \(dict.en.txt\); convert it with nmt-import"):
        Corpus.open(tmp_path)


def test_a_corpus_of_ours_stays_one_whatever_lies_beside_its_files(folder: Path) -> None:
    (folder / "dict.en.txt").write_text("house 2\n", encoding="utf-8")
    assert Corpus.open(folder).splits == ("train", "valid")


@pytest.mark.parametrize(
    ("position", "value", "sentence", "complaint"),
    [(1, 999, 0, r"sentence 1 holds id 999, but the vocabulary has 10 tokens"), (8, 5, 1, "does not end in eos")],
)
def test_of_a_large_corpus_a_sentence_is_checked_when_it_is_read(
    position: int, value: int, sentence: int, complaint: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nmt.data.corpus.rows, "LARGE", 11)
    name = "train.en.tokens.npy"
    array = np.load(folder / name)
    array[position] = value
    np.save(folder / name, array)
    reseal(folder, name)
    train = Corpus.open(folder).split("train")
    assert train.source(2)[-1] == train.target(0)[-1] == EOS
    with pytest.raises(DataError, match=complaint):
        train.source(sentence)
