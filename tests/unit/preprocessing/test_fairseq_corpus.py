"""Data folders of fairseq: hand-made ones, read and turned into corpora of ours."""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nmt.config.preprocessing import FilterConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.imported.vocabularies import read_fairseq_dictionary
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.vocabulary import EOS, UNK
from nmt.errors import DataError, MissingInputError, OutputError
from nmt.preprocessing.fairseq_corpus import import_corpus, read_fairseq_tokens
from nmt.storage.files import Verify

BOS_THERE, PAD_THERE, EOS_THERE, UNK_THERE = 0, 1, 2, 3
CODES = {"u1": 1, "i1": 2, "<i2": 3, "<i4": 4, "<i8": 5, "<u2": 8, "<u4": 9, "<u8": 10}
ENGLISH = [[4, 5, 2], [6, 2], [5, 3, 4, 2]]  # of fairseq's ids
GERMAN = [[5, 2], [4, 6, 2], [4, 2]]


def mapped(path: Path, sentences: Sequence[Sequence[int]], kind: str = "<u2") -> Path:
    """The files that ``--dataset-impl mmap`` makes."""
    lengths = np.array([len(sentence) for sentence in sentences], "<i4")
    places = (np.cumsum(lengths) - lengths).astype("<i8") * np.dtype(kind).itemsize
    head = struct.pack("<9sQBQ", b"MMIDIDX\x00\x00", 1, CODES[kind], len(sentences))
    Path(f"{path}.idx").write_bytes(head + lengths.tobytes() + places.tobytes())
    Path(f"{path}.bin").write_bytes(np.array(sum(map(list, sentences), []), kind).tobytes())
    return path


def counted_from_one(path: Path, sentences: Sequence[Sequence[int]], kind: str = "<i4") -> Path:
    """The files that ``--dataset-impl lazy`` and ``cached`` make."""
    lengths = np.array([len(sentence) for sentence in sentences], "<i8")
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype("<i8")
    count, size = len(sentences), np.dtype(kind).itemsize
    head = struct.pack("<8sQQQQQ", b"TNTIDX\x00\x00", 1, CODES[kind], size, count, count)
    dimensions = np.arange(count + 1, dtype="<i8")
    Path(f"{path}.idx").write_bytes(head + dimensions.tobytes() + ends.tobytes() + lengths.tobytes())
    Path(f"{path}.bin").write_bytes((np.array(sum(map(list, sentences), []), kind) + 1).tobytes())
    return path


FORMATS = {"mapped": mapped, "counted from one": counted_from_one}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data-bin"
    folder.mkdir()
    for split in ("train", "valid", "valid1"):
        mapped(folder / f"{split}.en-de.en", ENGLISH)
        mapped(folder / f"{split}.en-de.de", GERMAN)
    (folder / "dict.en.txt").write_text("the 3\nhouse 2\nold 1\nmadeupword0000 0\n", encoding="utf-8")
    (folder / "dict.de.txt").write_text("Haus 3\nalt 2\ndas 1\n", encoding="utf-8")
    return folder


def pair(source: str = "en", target: str = "de", german: Sequence[str] = ("alt", "das", "Haus")) -> LanguagePair:
    """Pieces in another order than fairseq's."""
    words = {"en": WordTokenizer(WordsConfig(), ["old", "house", "the"]), "de": WordTokenizer(WordsConfig(), german)}
    return LanguagePair(source, target, words[source], words[target], shared=False)


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_sentences_are_read_as_fairseq_numbered_them(write: type, kind: str, tmp_path: Path) -> None:
    text = read_fairseq_tokens(write(tmp_path / "train", [*ENGLISH, [], [2]], kind))
    assert [text.sentences(number, number + 1)[0].tolist() for number in range(len(text))] == [*ENGLISH, [], [2]]


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_no_sentences_are_none(write: type, tmp_path: Path) -> None:
    assert len(read_fairseq_tokens(write(tmp_path / "train", []))) == 0


def test_a_corpus_has_the_same_pieces_under_our_ids(folder: Path, tmp_path: Path) -> None:
    report = import_corpus(folder, pair(), tmp_path / "corpus")
    corpus = Corpus.open(tmp_path / "corpus", Verify.full)
    assert corpus.splits == ("train", "valid", "valid1") and not corpus.only_source
    for split in map(corpus.split, corpus.splits):
        sources = [corpus.pair.source.pieces(split.source(number).tolist()) for number in range(len(split))]
        targets = [corpus.pair.target.pieces(split.target(number).tolist()) for number in range(len(split))]
        assert sources == [["the", "house", "</s>"], ["old", "</s>"], ["house", "<unk>", "the", "</s>"]]
        assert targets == [["alt", "</s>"], ["Haus", "das", "</s>"], ["Haus", "</s>"]]
        assert split.sources.text() is None
    assert report.splits[0].source.pieces == 6 and report.splits[0].source.unknown == 1
    assert [overlap.pairs for overlap in report.overlaps] == [3, 3, 3]


def test_the_last_of_several_entries_for_a_piece_has_its_sentences(folder: Path, tmp_path: Path) -> None:
    (folder / "dict.en.txt").write_text(
        "the 3\nhouse 2\n<unk> 1 #fairseq:overwrite\nthe 9 #fairseq:overwrite\n", encoding="utf-8"
    )
    for split in ("train", "valid", "valid1"):
        mapped(folder / f"{split}.en-de.en", [[7, 5, 2], [6, 2], [5, UNK_THERE, 7, 2]])
    pieces = read_fairseq_dictionary(folder / "dict.en.txt")[4:]
    words = WordTokenizer(WordsConfig(), pieces), WordTokenizer(WordsConfig(), ["alt", "das", "Haus"])
    import_corpus(folder, LanguagePair("en", "de", *words, shared=False), tmp_path / "corpus")
    split = Corpus.open(tmp_path / "corpus").split("train")
    the, house, spelt_unk = (4 + pieces.index(piece) for piece in ("the", "house", "<unk>"))
    assert (the, house, spelt_unk) == (7, 5, 6)
    sentences = [split.source(number).tolist() for number in range(3)]
    assert sentences == [[the, house, EOS], [spelt_unk, EOS], [house, UNK, the, EOS]]


def test_both_formats_make_the_same_corpus(folder: Path, tmp_path: Path) -> None:
    import_corpus(folder, pair(), tmp_path / "one")
    for split in ("train", "valid", "valid1"):
        counted_from_one(folder / f"{split}.en-de.en", ENGLISH)
        counted_from_one(folder / f"{split}.en-de.de", GERMAN)
    import_corpus(folder, pair(), tmp_path / "other")
    one, other = (Corpus.open(tmp_path / name) for name in ("one", "other"))
    assert [one.fingerprint(split) for split in one.splits] == [other.fingerprint(split) for split in one.splits]


def test_a_folder_serves_both_directions(folder: Path, tmp_path: Path) -> None:
    import_corpus(folder, pair("de", "en"), tmp_path / "corpus")
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.pair.source.decode(corpus.split("train").source(1).tolist()) == "Haus das"


def test_a_sentence_without_eos_gets_one_and_specials_within_are_unknown(folder: Path, tmp_path: Path) -> None:
    mapped(folder / "train.en-de.en", [[4, 5], [4, EOS_THERE, BOS_THERE, PAD_THERE, EOS_THERE], [6]])
    import_corpus(folder, pair(), tmp_path / "corpus")
    split = Corpus.open(tmp_path / "corpus").split("train")
    the, house, old = 6, 5, 4
    assert [split.source(number).tolist() for number in range(3)] == [
        [the, house, EOS],
        [the, UNK, UNK, UNK, EOS],
        [old, EOS],
    ]


def test_only_training_pairs_are_filtered(folder: Path, tmp_path: Path) -> None:
    for split in ("train", "valid"):
        mapped(folder / f"{split}.en-de.en", [[4, 5, 2], [2], [6, 5, 4, 5, 4, 2], [5, 2], [4, 2]])
        mapped(folder / f"{split}.en-de.de", [[4, 2], [5, 2], [5, 2], [4, 2], [4, 2]])
    report = import_corpus(folder, pair(), tmp_path / "corpus", filters=FilterConfig(max_length=4))
    assert [split.kept for split in report.splits] == [3, 5, 3]
    assert {name: dropped.count for name, dropped in report.splits[0].dropped.items()} == {
        "empty source": 1,
        "longer than filters.max_length": 1,
    }


def test_a_source_alone_makes_a_corpus_to_translate(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.idx"):
        path.unlink()
    mapped(folder / "test.en-None.en", ENGLISH)
    import_corpus(folder, pair(), tmp_path / "corpus")
    corpus = Corpus.open(tmp_path / "corpus", Verify.full)
    assert corpus.only_source and corpus.splits == ("test",) and len(corpus.split("test")) == 3


def test_a_split_without_target_is_left_out_beside_others(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "valid1.en-de.de.idx").unlink()
    with caplog.at_level(logging.WARNING, logger="nmt"):
        import_corpus(folder, pair(), tmp_path / "corpus")
    assert Corpus.open(tmp_path / "corpus").splits == ("train", "valid")
    assert "split 'valid1' has no file of 'de'" in caplog.text


def test_a_piece_that_the_tokenizer_lacks_is_refused_if_it_occurs(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds the token 'das', which the tokenizer of 'de' does not know"):
        import_corpus(folder, pair(german=["alt", "Haus"]), tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_sides_of_different_length_are_refused(folder: Path, tmp_path: Path) -> None:
    mapped(folder / "train.en-de.de", GERMAN[:2])
    with pytest.raises(DataError, match=r"train.en-de.en has 3 sentences, but .*train.en-de.de has 2"):
        import_corpus(folder, pair(), tmp_path / "corpus")


@pytest.mark.parametrize("number", [8, 65535])
def test_an_id_beyond_the_dictionary_is_refused(number: int, folder: Path, tmp_path: Path) -> None:
    mapped(folder / "train.en-de.en", [[4, number, 2], *ENGLISH[1:]])
    with pytest.raises(DataError, match=r"train.en-de.en.bin is damaged: it holds ids beyond the 8"):
        import_corpus(folder, pair(), tmp_path / "corpus")


def test_a_negative_id_is_refused(folder: Path, tmp_path: Path) -> None:
    mapped(folder / "train.en-de.en", [[4, -2, 2], *ENGLISH[1:]], "<i4")
    with pytest.raises(DataError, match="ids beyond"):
        import_corpus(folder, pair(), tmp_path / "corpus")


def test_another_folder_is_refused_with_what_it_should_hold(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"no split of fairseq from en to fr, such as train\.en-fr\.en\.idx"):
        words = WordTokenizer(WordsConfig(), ["a"])
        import_corpus(folder, LanguagePair("en", "fr", words, words, shared=True), tmp_path / "corpus")
    with pytest.raises(MissingInputError, match="is not a folder"):
        import_corpus(folder / "none", pair(), tmp_path / "corpus")


def test_an_existing_folder_is_not_replaced_unasked(folder: Path, tmp_path: Path) -> None:
    import_corpus(folder, pair(), tmp_path / "corpus")
    with pytest.raises(OutputError, match="not empty"):
        import_corpus(folder, pair(), tmp_path / "corpus")
    import_corpus(folder, pair(), tmp_path / "corpus", overwrite=True)


def header(magic: bytes = b"MMIDIDX\x00\x00", version: int = 1, code: int = 8, count: int = 0) -> bytes:
    return struct.pack("<9sQBQ", magic, version, code, count)


DAMAGED = {
    "nothing": (b"", "does not begin like a fairseq index"),
    "text": (b"the 3\nhouse 2\n", "does not begin like a fairseq index"),
    "the magic number alone": (b"MMIDIDX\x00\x00", "does not begin like a fairseq index"),
    "compressed": (b"HUFFIDX\x00\x00" + bytes(40), "--dataset-impl mmap"),
    "another version": (header(version=2), "version 2"),
    "numbers that are not whole": (header(code=7), "type 7"),
    "more sentences than the file has room for": (header(count=2**60), "bytes instead of"),
    "a hostile count": (header(count=2**64 - 1), "bytes instead of"),
    "bytes behind the end": (header() + b"x", "bytes instead of"),
    "a negative length": (header(count=1) + struct.pack("<iq", -1, 0), "its sentences are not contiguous in"),
    "a sentence beyond the end": (
        header(count=1) + struct.pack("<iq", 10**9, 0),
        "its sentences are not contiguous in",
    ),
    "sentences that overlap": (
        header(count=2) + struct.pack("<iiqq", 2, 2, 0, 0),
        "its sentences are not contiguous in",
    ),
    "a negative place": (header(count=1) + struct.pack("<iq", 4, -8), "its sentences are not contiguous in"),
    "old, cut short": (b"TNTIDX\x00\x00" + bytes(10), "does not begin like a fairseq index"),
    "old, hostile counts": (struct.pack("<8sQQQQQ", b"TNTIDX\x00\x00", 1, 4, 4, 2**63, 2**63), "bytes instead of"),
    "old, tensors": (
        struct.pack("<8sQQQQQ6q", b"TNTIDX\x00\x00", 1, 4, 4, 1, 2, 0, 2, 0, 2, 2, 1),
        "it does not describe sentences",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_index_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    content, complaint = DAMAGED[name]
    (tmp_path / "train.idx").write_bytes(content)
    (tmp_path / "train.bin").write_bytes(bytes(8))
    with pytest.raises(DataError, match=complaint):
        read_fairseq_tokens(tmp_path / "train")


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_whatever_byte_of_an_index_changes_it_is_read_or_refused(write: type, tmp_path: Path) -> None:
    path = Path(f"{write(tmp_path / 'train', ENGLISH)}.idx")
    content, chance, refused = path.read_bytes(), random.Random(4), 0
    for _ in range(500):
        damaged = bytearray(content)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.unlink()  # a mapped file is not rewritten
        path.write_bytes(damaged)
        try:
            text = read_fairseq_tokens(tmp_path / "train")
            assert sum(len(text.sentences(number, number + 1)[0]) for number in range(len(text))) <= 9
        except DataError:
            refused += 1
    assert refused > 300


@pytest.mark.parametrize("ending", ["bin", "idx"])
def test_a_missing_file_is_named(ending: str, tmp_path: Path) -> None:
    Path(f"{mapped(tmp_path / 'train', ENGLISH)}.{ending}").unlink()
    with pytest.raises(MissingInputError, match=rf"train\.{ending}"):
        read_fairseq_tokens(tmp_path / "train")
