"""Corpora that are prepared in shards: their merge has the bytes of one run."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.preprocessing import FilterConfig, Leaked, PreprocessConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.corpus.stored_text import StoredPairs, text_identity
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import DataError, MissingInputError, OutputError, UsageError
from nmt.preprocessing.preprocess import finished_shard, preprocess
from nmt.storage.files import Verify, replace_manifest
from tests.unit.preprocessing.small_text import SOURCE, TARGET, Text

FILTERS = FilterConfig(
    max_length=5,
    drop_duplicates=True,
    drop_leaked=Leaked.pairs,
    max_characters=30,
    max_digits_apart=1,
    drop_copies=True,
)


@pytest.fixture
def text(tmp_path: Path) -> Text:
    """With repetitions, leaks and faults of all kinds in every part."""
    text, chance = Text(tmp_path), random.Random(1)
    pairs = [*zip(SOURCE, TARGET)] * 12 + [
        ("", "x"),
        ("a 1999", "b"),
        ("same", "same"),
        ("w " * 9, "w"),
        ("x" * 40, "y"),
    ] * 5
    pairs += [(f"the number {number}", f"Zahl {number}") for number in range(60)]
    chance.shuffle(pairs)
    text.write("train", *zip(*pairs))
    text.write("valid", SOURCE[:2] + ["", "of its own"], TARGET[:2] + ["leer", "eigen"])
    aligned = ("0-0\n" if source and target else "\n" for source, target in pairs)
    (tmp_path / "train.align").write_text("".join(aligned))
    vocabulary, _ = text.make(destdir=f"{tmp_path}/vocabulary")
    text.config = replace(
        text.config,
        srcdict=str(vocabulary.folder),
        tgtdict=str(vocabulary.folder),
        validpref=f"{tmp_path}/valid",
        filters=FILTERS,
        align_suffix="align",
    )
    return text


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def shards(text: Text, count: int, **options: Any) -> str:
    for number in range(1, count + 1):
        preprocess(replace(text.config, shard=f"{number}/{count}", destdir=f"{text.folder}/shards", **options))
    return f"{text.folder}/shards"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 11])
@pytest.mark.parametrize(
    "options", [{"keep_text": True}, {"filters": FilterConfig(), "workers": 2}], ids=["filtered, with text", "plain"]
)
def test_shards_joined_are_what_one_run_makes(text: Text, count: int, options: dict[str, Any]) -> None:
    text.make(**options)
    whole = content(text.folder / "corpus")
    shutil.rmtree(text.folder / "corpus")
    folder = shards(text, count, **options)
    corpus, report = text.make(
        merge=folder, trainpref=None, validpref=None, srcdict=None, tgtdict=None, align_suffix=None, **options
    )
    joined = content(text.folder / "corpus")
    assert joined.keys() == whole.keys()
    for name, expected in whole.items():
        assert joined[name] == expected, name
    assert report.splits[0].read == corpus.report["splits"][0]["read"] > report.splits[0].kept or not options.get(
        "filters"
    )


def test_a_merge_into_another_folder_differs_in_its_manifest_alone(text: Text) -> None:
    """It has the options of the first shard, and its own name."""
    text.make()
    folder = shards(text, 2, workers=2)
    options = {"trainpref": None, "validpref": None, "srcdict": None, "tgtdict": None, "align_suffix": None}
    text.make(merge=folder, destdir=f"{text.folder}/joined", **options)
    whole, joined = content(text.folder / "corpus"), content(text.folder / "joined")
    assert whole.keys() == joined.keys()
    assert [name for name in whole if whole[name] != joined[name]] == ["manifest.json"]
    one, other = (json.loads(files["manifest.json"])["config"] for files in (whole, joined))
    assert {name for name in one if one[name] != other[name]} == {"destdir", "workers"}


def test_a_shard_is_a_corpus_of_its_own(text: Text) -> None:
    folder = Path(shards(text, 12))
    first, last = (Corpus.open(folder / f"shard-{number}-of-12", Verify.full) for number in ("01", "12"))
    assert (first.splits, last.splits) == (("train", "valid"), ("train",))
    assert 0 < len(last.split("train")) < 20


def test_a_finished_shard_is_known_by_its_text_and_options(text: Text) -> None:
    shards(text, 2)
    config = replace(text.config, shard="1/2", destdir=f"{text.folder}/shards")
    assert finished_shard(replace(config, workers=2)) == Path(f"{text.folder}/shards/shard-1-of-2")
    for other in ({"shard": "2/3"}, {"filters": FilterConfig(max_length=5)}, {"overwrite": True}, {"shard": None}):
        assert finished_shard(replace(config, **other)) is None
    source = Path(f"{config.trainpref}.{config.source_lang}")
    source.write_bytes(source.read_bytes() + b"more\n")
    assert finished_shard(config) is None


def test_each_shard_keeps_what_it_drops_with_the_numbers_of_the_whole_text(text: Text) -> None:
    text.make(keep_dropped=f"{text.folder}/whole.tsv", filters=FilterConfig(max_length=5))
    parts = []
    for number in (1, 2):
        name = f"{text.folder}/part{number}.tsv"
        options = {"shard": f"{number}/2", "destdir": f"{text.folder}/shards", "keep_dropped": name}
        preprocess(replace(text.config, filters=FilterConfig(max_length=5), **options))
        parts.append(Path(name).read_bytes())
    assert b"".join(parts) == (text.folder / "whole.tsv").read_bytes()


def test_options_beside_a_merge_that_change_nothing_are_refused(text: Text) -> None:
    folder = shards(text, 2)
    with pytest.raises(UsageError, match="which were made with only_source=False; omit only_source=True, or make"):
        preprocess(PreprocessConfig(merge=folder, destdir=f"{text.folder}/joined", only_source=True))
    with pytest.raises(UsageError, match=r"made with filters.max_length=5; omit filters.max_length=7"):
        preprocess(PreprocessConfig(merge=folder, filters=FilterConfig(max_length=7)))


def test_shards_do_not_share_a_file_of_what_they_drop(text: Text) -> None:
    shared = {"keep_dropped": f"{text.folder}/dropped.tsv", "destdir": f"{text.folder}/shards", "overwrite": True}
    preprocess(replace(text.config, shard="1/2", **shared))
    with pytest.raises(OutputError, match=r"dropped.tsv exists already"):
        preprocess(replace(text.config, shard="2/2", **shared))


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2"])
def test_a_shard_is_a_number_and_how_many(text: Text, shard: str) -> None:
    with pytest.raises(UsageError, match=f"shard={shard} must be a number and the total, such as 2/8"):
        text.make(shard=shard)


def test_a_shard_needs_given_vocabularies(text: Text) -> None:
    with pytest.raises(
        UsageError, match="--shard needs existing vocabularies, the same for all shards; give --srcdict"
    ):
        text.make(shard="1/2", tgtdict=None)
    with pytest.raises(UsageError, match="--shard and --merge exclude each other"):
        text.make(shard="1/2", merge="shards", trainpref=None, validpref=None)
    with pytest.raises(UsageError, match="--merge joins shards and reads no text; omit --trainpref"):
        text.make(merge="shards", validpref=None)
    with pytest.raises(
        UsageError, match=r"shard=1/999 is empty: the training text has (\d+) pairs; use at most \1 shards"
    ):
        text.make(shard="1/999")


def test_what_cannot_be_joined_is_said_and_leaves_nothing(text: Text) -> None:
    folder = Path(shards(text, 2))

    def refused(kind: type[Exception], says: str) -> None:
        with pytest.raises(kind, match=says):
            text.make(merge=str(folder), destdir=f"{text.folder}/joined", trainpref=None, validpref=None)
        assert not (text.folder / "joined").exists()

    second = folder / "shard-2-of-2"
    shutil.copytree(second, folder / "shard-1-of-3")
    refused(DataError, "holds shards of several corpora; keep those of one")
    shutil.rmtree(folder / "shard-1-of-3")
    shutil.copytree(folder / "shard-1-of-2", folder / "kept")
    shutil.rmtree(folder / "shard-1-of-2")
    shutil.copytree(second, folder / "shard-1-of-2")
    refused(DataError, "shard-1-of-2 holds shard 2 of 2; rename it to shard-2-of-2")
    shutil.rmtree(folder / "shard-1-of-2")
    (folder / "kept").rename(folder / "shard-1-of-2")
    second.rename(text.folder / "kept")
    refused(MissingInputError, "lacks 1 of 2 shards; prepare the first with --shard 2/2")
    shutil.copytree(text.folder / "kept", second)
    (second / "train.facts.npy").write_bytes(b"damaged")
    refused(DataError, "damaged")
    shutil.rmtree(second)
    shutil.copytree(text.folder / "kept", second)
    tokens = np.load(second / "train.en.tokens.npy")
    tokens[0] = 4 if tokens[0] != 4 else 5  # another word: what is joined would have a checksum of it
    np.save(second / "train.en.tokens.npy", tokens)
    refused(DataError, "train.en.tokens.npy is damaged: its checksum differs")
    shutil.rmtree(second)
    preprocess(replace(text.config, shard="2/2", destdir=str(folder), filters=FilterConfig()))
    refused(DataError, "were made with different options; prepare one of these shards again")
    tree = json.loads((second / "shard.json").read_text())
    (second / "shard.json").write_text(json.dumps(tree | {"splits": {"train": {}}}))
    refused(DataError, "shard.json is damaged")
    manifest = json.loads((second / "manifest.json").read_text())
    del manifest["files"]["shard.json"]
    replace_manifest(second, manifest)
    refused(DataError, "shard.json is damaged; prepare the shard again")
    (second / "shard.json").unlink()
    refused(DataError, "is not a shard of a corpus")
    shutil.rmtree(folder)
    refused(MissingInputError, "holds no shards")


def test_all_shards_of_a_folder_are_read_as_one_corpus(text: Text) -> None:
    options: dict[str, Any] = {"keep_text": True, "filters": FilterConfig()}
    whole, _ = text.make(**options)
    folder = Path(shards(text, 3, **options))
    several = Corpus.open(folder)
    assert several.splits == whole.splits and several.pair.digest() == whole.pair.digest()
    for name in whole.splits:
        one, other = several.split(name), whole.split(name)
        assert len(one) == len(other) > 0
        for number in range(len(one)):
            assert one.source(number).tolist() == other.source(number).tolist()
            assert one.target(number).tolist() == other.target(number).tolist()
        assert (one.alignments is None) == (other.alignments is None)
    texts = [StoredPairs([corpus], "train") for corpus in (several, whole)]
    count = len(whole.split("train"))
    assert [texts[0][number] for number in range(count)] == [texts[1][number] for number in range(count)]
    assert text_identity(several, "train").split() != text_identity(whole, "train").split()
    assert several.fingerprint("train") == Corpus.open(folder).fingerprint("train") != whole.fingerprint("train")
    with pytest.raises(DataError, match="has no split 'tset'"):
        several.split("tset")
    shutil.rmtree(folder / "shard-2-of-3")
    with pytest.raises(MissingInputError, match="lacks 1 of 3 shards; prepare the first with --shard 2/3"):
        Corpus.open(folder)


def test_a_folder_of_shards_names_their_vocabularies(text: Text) -> None:
    folder = shards(text, 2)
    other, _ = text.make(srcdict=folder, tgtdict=folder, destdir=f"{text.folder}/other")
    assert other.pair.digest() == Corpus.open(Path(folder)).pair.digest()


def test_a_tag_is_of_shards_and_not_of_their_merge(text: Text) -> None:
    with pytest.raises(UsageError, match="--merge joins shards and reads no text; omit --tag"):
        text.make(merge=shards(text, 2), trainpref=None, validpref=None, tag="de", destdir=f"{text.folder}/joined")


def test_shards_of_two_vocabularies_are_no_corpus(text: Text) -> None:
    text.config = replace(text.config, filters=FilterConfig())
    folder = Path(shards(text, 2))
    other, _ = text.make(srcdict=None, tgtdict=None, tokenizer=BpeConfig(vocab_size=50), align_suffix=None)
    shutil.rmtree(folder / "shard-2-of-2")
    given = {"srcdict": str(other.folder), "tgtdict": str(other.folder), "align_suffix": None}
    preprocess(replace(text.config, shard="2/2", destdir=str(folder), **given))
    with pytest.raises(DataError, match="have different vocabularies; prepare one of these shards again"):
        Corpus.open(folder)
