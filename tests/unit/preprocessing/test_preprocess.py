"""From text to corpus: splits, vocabularies, counts and the promise to write everything or nothing."""

from __future__ import annotations

import gzip
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.choices import InvalidText
from nmt.config.preprocessing import FilterConfig, Leaked, PreprocessConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import CharConfig, WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import DataError, OutputError, StorageError, UsageError
from nmt.preprocessing import encoding
from nmt.preprocessing.preprocess import preprocess
from nmt.reporting.preprocess_report import Dropped
from nmt.storage.files import Verify
from tests.unit.preprocessing.small_text import SOURCE, TARGET, Text

DATA = Path(os.environ.get("NMT_DATA", Path(__file__).parents[4] / "shared" / "data"))


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(tmp_path)


# --- splits


def test_several_prefixes_become_numbered_splits(text: Text) -> None:
    prefix = f"{text.folder}/valid"
    corpus, _ = text.make(validpref=f"{prefix},{prefix}", testpref=f"{prefix}, {prefix},{prefix}")
    assert corpus.splits == ("train", "valid", "valid1", "test", "test1", "test2")


def test_packed_and_plain_files_make_the_same_corpus(text: Text) -> None:
    plain, _ = text.make()
    for path in text.folder.glob("train.*"):
        (text.folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed, _ = text.make(destdir=f"{text.folder}/packed")
    assert packed.fingerprint("train") == plain.fingerprint("train")


def test_without_a_training_split_given_vocabularies_serve(text: Text) -> None:
    known, _ = text.make()
    corpus, _ = text.make(
        trainpref=None,
        testpref=f"{text.folder}/valid",
        destdir=f"{text.folder}/test",
        srcdict=str(known.folder),
        tgtdict=str(known.folder),
    )
    assert corpus.splits == ("test",)
    assert corpus.pair.digest() == known.pair.digest()


def test_a_source_alone_can_be_encoded_for_a_known_pair(text: Text) -> None:
    known, _ = text.make(joined_dictionary=True)
    (text.folder / "valid.de").unlink()
    corpus, report = text.make(
        trainpref=None,
        testpref=f"{text.folder}/valid",
        destdir=f"{text.folder}/test",
        srcdict=str(known.folder),
        only_source=True,
        target_lang="",
    )
    split = corpus.split("test")
    assert corpus.pair.digest() == known.pair.digest() and corpus.pair.shared
    assert split.targets is None and split.target_lengths is None
    assert split.sources.text() == SOURCE[:2]
    assert report.splits[0].target is None
    assert not list(corpus.folder.glob("*.de.*"))
    with pytest.raises(DataError, match="no target side"):
        split.target(0)
    corpus.fingerprint("test")


def test_a_source_alone_can_be_learned_from(text: Text) -> None:
    corpus, _ = text.make(only_source=True, target_lang="")
    assert corpus.pair.shared and corpus.pair.source.decode(corpus.split("train").source(0).tolist()) == SOURCE[0]


# --- filters and counts


def test_the_report_counts_what_was_dropped_and_names_the_first_line(text: Text) -> None:
    text.write("train", [*SOURCE, "", " ", "a " * 20], [*TARGET, "x", "y", "z"])
    _, report = text.make(filters=FilterConfig(max_length=10))
    (train,) = report.splits
    assert (train.read, train.kept) == (12, 9)
    assert train.dropped == {"empty source": Dropped(2, 10), "longer than filters.max_length": Dropped(1, 12)}
    assert "train: 2 dropped: empty source (first in line 10)" in report.lines()


def test_only_the_training_split_is_filtered(text: Text) -> None:
    text.write("valid", ["", "a b", "c " * 50, "a b"], ["x", "", "y", ""])
    corpus, report = text.make(
        validpref=f"{text.folder}/valid", filters=FilterConfig(max_length=10, drop_duplicates=True)
    )
    valid = corpus.split("valid")
    assert len(valid) == 4
    assert valid.source_lengths.tolist() == [1, 3, 51, 3]
    assert report.splits[1].blank == 3
    assert any("valid: 3 pairs with an empty side; kept" in warning for warning in report.warnings())


def test_kept_sentences_stay_parallel_when_others_are_dropped(text: Text) -> None:
    source, target = list(SOURCE), list(TARGET)
    for index in (0, 4, 8):
        source[index] = ""
    text.write("train", source, target)
    corpus, _ = text.make()
    train = corpus.split("train")
    kept = [(s, t) for s, t in zip(source, target) if s]
    decoded = [
        (corpus.pair.source.decode(train.source(i).tolist()), corpus.pair.target.decode(train.target(i).tolist()))
        for i in range(len(train))
    ]
    assert decoded == kept


def test_pieces_and_unknowns_are_counted_without_eos(text: Text) -> None:
    _, report = text.make(tokenizer=WordsConfig(min_count=4))
    (train,) = report.splits
    assert train.source.pieces == 36 and train.source.unknown == 18  # "the" and "is" are known
    assert train.target is not None and train.target.pieces == 27 and train.target.unknown == 18
    assert train.source.unknown_percent == 50.0
    assert any("train en: 50.0 % of the tokens are unknown" in warning for warning in report.warnings())


def test_repetitions_are_counted_and_can_be_dropped(text: Text) -> None:
    text.write("train", [*SOURCE, SOURCE[0], SOURCE[0]], [*TARGET, TARGET[0], TARGET[0]])
    _, report = text.make()
    assert (report.splits[0].kept, report.splits[0].duplicates) == (11, 2)
    _, report = text.make(filters=FilterConfig(drop_duplicates=True), overwrite=True)
    assert (report.splits[0].kept, report.splits[0].duplicates) == (9, 0)
    assert report.splits[0].dropped == {"pair seen before": Dropped(2, 10)}


def test_overlaps_between_splits_are_counted(text: Text) -> None:
    text.write("valid", [SOURCE[0], SOURCE[1], "new"], [TARGET[0], "anders", "neu"])
    text.write("test", ["new"], ["neu"])
    _, report = text.make(validpref=f"{text.folder}/valid", testpref=f"{text.folder}/test")
    found = {(overlap.split, overlap.other): (overlap.pairs, overlap.sources) for overlap in report.overlaps}
    assert found == {("valid", "train"): (1, 2), ("test", "train"): (0, 0), ("test", "valid"): (1, 1)}
    assert "valid overlaps train: 1 of its pairs and 2 of its sources are also there" in report.warnings()
    assert not any(warning.startswith("test overlaps train") for warning in report.warnings())


@pytest.mark.parametrize("workers", [1, 2])
def test_training_pairs_that_stand_in_the_validation_text_can_be_dropped(text: Text, workers: int) -> None:
    corpus, report = text.make(
        validpref=f"{text.folder}/valid", filters=FilterConfig(drop_leaked=Leaked.pairs), workers=workers
    )
    assert len(corpus.split("train")) == len(SOURCE) - 2 and len(corpus.split("valid")) == 2
    assert report.splits[0].dropped["also in a validation or test split"] == Dropped(2, 1)
    assert [overlap.pairs for overlap in report.overlaps] == [0]
    assert [split.split for split in report.splits] == ["train", "valid"]


@pytest.mark.parametrize("name", ["dropped.tsv", "dropped.tsv.gz"])
def test_dropped_pairs_can_be_kept_with_their_reasons(text: Text, name: str) -> None:
    text.write("train", ["a\tb", "", *SOURCE], ["c " * 9, "x", *TARGET])
    text.make(filters=FilterConfig(max_length=8), keep_dropped=f"{text.folder}/{name}")
    content = (text.folder / name).read_bytes()
    assert name.encode() not in content  # a packed file does not store a name, which would change from run to run
    lines = (gzip.decompress(content) if name.endswith(".gz") else content).decode().split("\n")
    assert lines == [
        f"longer than filters.max_length\t1\ta b\t{'c ' * 9}",
        "empty source\t2\t\tx",
        "",
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("train.de", "train.de is an input file; choose another"),
        ("link", "link is an input file; choose another"),
        ("notes", "notes exists already; choose another name, or replace it with --overwrite"),
        ("none/dropped", "none is not a folder; create it first, or choose another --keep-dropped"),
        ("corpus/dropped", "is inside the corpus folder; choose a file outside of"),
    ],
)
def test_dropped_pairs_take_the_place_of_nothing(text: Text, name: str, says: str) -> None:
    (text.folder / "notes").write_text("precious", encoding="utf-8")
    (text.folder / "link").symlink_to(text.folder / "train.en")
    before = {path: path.read_bytes() for path in text.folder.iterdir()}
    given = {"filters": FilterConfig(max_length=2), "keep_dropped": f"{text.folder}/{name}"}
    with pytest.raises(OutputError, match=says):
        text.make(destdir=f"{text.folder}/corpus", overwrite=name != "notes", **given)
    assert {path: path.read_bytes() for path in text.folder.iterdir()} == before


def test_options_that_would_do_nothing_are_refused(text: Text) -> None:
    with pytest.raises(UsageError, match="--moses needs --bpe subword_nmt or fastbpe; give"):
        text.make(moses=True)
    with pytest.raises(UsageError, match="--shard 1/2 needs training text; give --trainpref"):
        text.make(trainpref=None, shard="1/2", srcdict="x", tgtdict="x")


def test_a_script_that_unicode_has_not_is_refused_before_the_text_is_read(text: Text) -> None:
    with pytest.raises(UsageError, match="'Englisch' is not a Unicode script"):
        text.make(trainpref="no text", filters=FilterConfig(source_script="Englisch"))


def test_the_report_stands_in_the_manifest(text: Text) -> None:
    corpus, report = text.make()
    manifest = json.loads((corpus.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["report"]["splits"][0]["kept"] == report.splits[0].kept
    assert manifest["config"]["tokenizer"]["name"] == "words"
    assert [Path(facts["path"]).name for facts in manifest["text"]] == ["train.en", "train.de"]


# --- several processes


def test_any_number_of_processes_writes_the_same_files(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK_LINES", 7)
    numbers = [f"{number} {number % 7} {'x' * (number % 5)}" for number in range(300)]
    text.write("train", numbers, reversed(numbers))
    written = []
    for workers in (1, 3):
        corpus, _ = text.make(workers=workers, tokenizer=CharConfig(), destdir=f"{text.folder}/corpus{workers}")
        files = {path.name: path.read_bytes() for path in corpus.folder.rglob("*.npy")}
        written.append(files | {"pair": (corpus.folder / "tokenizer" / "pair.json").read_bytes()})
    assert written[0] == written[1]


@pytest.mark.parametrize("lines", [1, 2, 8, 9, 10, 2000])
def test_the_size_of_a_chunk_changes_nothing(lines: int, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = text.make()
    monkeypatch.setattr(encoding, "CHUNK_LINES", lines)
    corpus, report = text.make(destdir=f"{text.folder}/other")
    assert corpus.fingerprint("train") == expected.fingerprint("train")
    assert report.splits[0].read == len(SOURCE)


def test_a_worker_that_dies_is_reported(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_encode", _die)
    with pytest.raises(StorageError, match=r"worker process ended unexpectedly \(.*lower workers=2"):
        text.make(workers=2)
    assert not (text.folder / "corpus").exists()


def _die(*_: object) -> None:
    os._exit(9)


def test_progress_ends_at_the_number_of_lines(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "CHUNK_LINES", 4)
    seen: list[tuple[str, int, int]] = []
    preprocess(replace(text.config, validpref=f"{text.folder}/valid"), lambda *step: seen.append(step))
    assert seen == [("train", 4, 9), ("train", 8, 9), ("train", 9, 9), ("valid", 2, 2)]


# --- all or nothing


def test_the_same_command_writes_the_same_bytes(text: Text) -> None:
    for name in ("one", "two"):
        text.make(tokenizer=BpeConfig(vocab_size=50), joined_dictionary=True, destdir=f"{text.folder}/{name}")
    one, two = (
        {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*.*")
            if path.name != "manifest.json"
        }
        for folder in (text.folder / "one", text.folder / "two")
    )
    assert one == two


def test_symbols_that_an_existing_vocabulary_lacks_are_refused(text: Text) -> None:
    known, _ = text.make()
    named = {"srcdict": str(known.folder), "tgtdict": str(known.folder), "destdir": f"{text.folder}/again"}
    with pytest.raises(UsageError, match=r"corpus lacks <a> <b> \(--user-defined-symbols\); name tokens that it has"):
        text.make(**named, tokenizer=BpeConfig(user_defined_symbols=["<a>", "<b>"]))
    assert not Path(named["destdir"]).exists()


def test_an_existing_corpus_is_replaced_only_on_demand(text: Text) -> None:
    text.make()
    with pytest.raises(OutputError, match=r"corpus exists and is not empty; .*--overwrite"):
        text.make()
    corpus, _ = text.make(overwrite=True, tokenizer=CharConfig())
    assert isinstance(corpus.pair.source.config, CharConfig)


def test_an_empty_folder_may_be_filled(text: Text) -> None:
    (text.folder / "corpus").mkdir()
    corpus, _ = text.make()
    assert "train" in corpus.splits


@pytest.mark.parametrize("foreign", ["notes.txt", "tokenizer/mine", "deep/er/file"])
def test_foreign_files_are_never_deleted(foreign: str, text: Text) -> None:
    text.make()
    path = text.folder / "corpus" / foreign
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious", encoding="utf-8")
    with pytest.raises(OutputError, match=f"do not belong to a corpus, such as {foreign}"):
        text.make(overwrite=True)
    assert path.read_text(encoding="utf-8") == "precious"


def test_a_folder_that_is_no_corpus_is_never_replaced(text: Text) -> None:
    (text.folder / "corpus").mkdir()
    (text.folder / "corpus" / "thesis.tex").touch()
    with pytest.raises(OutputError, match=r"such as thesis\.tex"):
        text.make(overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_appears_meanwhile_is_not_deleted(overwrite: bool, text: Text) -> None:
    if overwrite:
        text.make()
    path = text.folder / "corpus" / "notes.txt"

    def appear(split: str, done: int, total: int) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious", encoding="utf-8")

    with pytest.raises(
        OutputError, match="corpus (exists and is not empty|holds files that do not belong to a corpus)"
    ):
        preprocess(replace(text.config, overwrite=overwrite), appear)
    assert path.read_text(encoding="utf-8") == "precious"


def test_of_two_commands_into_one_folder_the_second_is_refused(text: Text) -> None:
    first, _ = text.make(tokenizer=CharConfig(), destdir=f"{text.folder}/first")

    def ends(split: str, done: int, total: int) -> None:
        first.folder.rename(text.folder / "corpus")

    with pytest.raises(OutputError, match="corpus exists and is not empty"):
        preprocess(text.config, ends)
    assert isinstance(Corpus.open(text.folder / "corpus", Verify.full).pair.source.config, CharConfig)


def test_an_interrupted_run_leaves_nothing(text: Text) -> None:
    def interrupt(split: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        preprocess(text.config, interrupt)
    assert sorted(path.name for path in text.folder.iterdir()) == ["train.de", "train.en", "valid.de", "valid.en"]


def test_an_interrupted_replacement_leaves_the_old_corpus(text: Text) -> None:
    before, _ = text.make()

    def interrupt(split: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        preprocess(replace(text.config, overwrite=True, tokenizer=CharConfig()), interrupt)
    assert Corpus.open(before.folder, Verify.full).fingerprint("train") == before.fingerprint("train")


# --- what cannot be asked for


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"source_lang": ""}, "--source-lang is missing"),
        ({"target_lang": ""}, "--target-lang is missing"),
        ({"target_lang": "en"}, "both 'en'"),
        ({"target_lang": "../de"}, "cannot contain '/'"),
        ({"trainpref": None}, "no text is given"),
        ({"workers": 0}, "workers=0"),
        ({"max_line_bytes": 0}, "max_line_bytes=0"),
        ({"seed": -1}, "seed=-1"),
        ({"tokenizer": None}, r"tokenizer=bpe\|char\|unigram\|words"),
        ({"joined_dictionary": True, "srcdict": "a", "tgtdict": "b"}, "not two different ones"),
    ],
)
def test_a_contradictory_request_is_refused(options: dict[str, Any], complaint: str, text: Text) -> None:
    with pytest.raises(UsageError, match=complaint):
        text.make(**options)


def test_nothing_can_be_learned_without_training_text(text: Text) -> None:
    with pytest.raises(UsageError, match="learned from the training split only"):
        text.make(trainpref=None, validpref=f"{text.folder}/valid")


def test_what_is_impossible_to_learn_names_the_files(text: Text) -> None:
    with pytest.raises(UsageError, match=r"train\.en: tokenizer.vocab_size=8000"):
        text.make(tokenizer=BpeConfig())


# --- bytes that are not text


@pytest.fixture
def with_bad_byte(text: Text) -> Text:
    (text.folder / "train.de").write_bytes("\n".join(TARGET).encode().replace(b"Baum", b"B\xffum", 1) + b"\n")
    return text


def test_a_line_with_bad_bytes_is_left_out_on_both_sides(with_bad_byte: Text) -> None:
    corpus, report = with_bad_byte.make(on_invalid_utf8=InvalidText.skip)
    assert report.splits[0].dropped == {"bytes that are not text": Dropped(1, 4)}
    train = corpus.split("train")
    assert corpus.pair.source.decode(train.source(3).tolist()) == SOURCE[4]
    assert corpus.pair.target.decode(train.target(3).tolist()) == TARGET[4]


def test_in_a_test_set_a_line_with_bad_bytes_becomes_empty(with_bad_byte: Text) -> None:
    corpus, _ = with_bad_byte.make(testpref=with_bad_byte.config.trainpref, on_invalid_utf8=InvalidText.skip)
    target = corpus.split("test").targets.text()
    assert target == [*TARGET[:3], "", *TARGET[4:]]


# --- real text


@pytest.mark.skipif(not (DATA / "multi30k").is_dir(), reason=f"no Multi30k in {DATA} (set NMT_DATA)")
def test_multi30k_survives_byte_pair_encoding(tmp_path: Path) -> None:
    prefix = f"{DATA}/multi30k/val"
    report = preprocess(
        PreprocessConfig(
            source_lang="en",
            target_lang="de",
            trainpref=prefix,
            validpref=prefix,
            destdir=f"{tmp_path}/corpus",
            tokenizer=BpeConfig(vocab_size=2000),
            joined_dictionary=True,
        )
    )
    corpus = Corpus.open(Path(report.folder), Verify.full)
    valid = corpus.split("valid")
    text = valid.targets.text()
    assert text is not None and len(valid) == 1014
    assert [corpus.pair.target.decode(valid.target(index).tolist()) for index in range(1014)] == [
        " ".join(line.split()) for line in text
    ]
    assert report.splits[0].source.unknown == 0
    assert report.overlaps[0].pairs == 1014


def test_the_caller_is_told_of_one_file_on_both_sides(text: Text, caplog: pytest.LogCaptureFixture) -> None:
    (text.folder / "train.de").unlink()
    (text.folder / "train.de").symlink_to(text.folder / "train.en")
    with caplog.at_level(logging.WARNING, logger="nmt"):
        _, report = text.make()
    assert "are the same file" in caplog.text
    assert any("source and target are identical" in warning for warning in report.warnings())


def test_all_arrays_have_the_length_that_the_report_says(text: Text) -> None:
    corpus, report = text.make()
    tokens = np.load(corpus.folder / "train.en.tokens.npy")
    assert len(tokens) == report.splits[0].source.pieces + report.splits[0].kept
