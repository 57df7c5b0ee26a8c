"""Corpus folders and shards with damage at random: an error in a sentence, or what was stored.

With ``--verify full`` nothing may be read that was not written. The fast check may miss numbers that are other numbers;
whatever it lets pass has the right shape.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.config.choices import Segmentation
from nmt.config.preprocessing import FilterConfig, PreprocessConfig
from nmt.data.corpus.folder import Corpus, chain, open_corpora
from nmt.data.corpus.stored_text import StoredPairs, text_identity
from nmt.data.tokenizers.piece_lists import CharConfig, WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.data.vocabulary import EOS
from nmt.errors import NMTError
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.files import Verify
from tests.faults.mutations import in_a_child, mutations
from tests.faults.parallel_task import SOURCE, TARGET

KINDS = ("words", "char", "bpe", "codes")


def make_text(folder: Path) -> None:
    for language, lines in {"en": SOURCE, "de": TARGET}.items():
        for split, some in {"train": lines, "valid": lines[:3]}.items():
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    (folder / "train.align").write_text("0-0 1-1 2-2\n" * len(SOURCE), encoding="utf-8")
    (folder / "codes").write_text("#version: 0.2\nr e\nt re\no n\nT R\n", encoding="utf-8")


def config_of(kind: str, folder: Path, **options: Any) -> PreprocessConfig:
    tokenizer = {"words": WordsConfig(), "char": CharConfig(), "bpe": BpeConfig(vocab_size=40), "codes": None}[kind]
    given: dict[str, Any] = {
        "trainpref": str(folder / "train"),
        "validpref": str(folder / "valid"),
        "destdir": str(folder / "corpus"),
        "tokenizer": tokenizer,
        "keep_text": True,
        "align_suffix": "align" if kind == "words" else None,
        "joined_dictionary": kind == "bpe",
    }
    if kind == "codes":
        given |= {"bpe": Segmentation.subword_nmt, "bpe_model": str(folder / "codes")}
    return PreprocessConfig("en", "de", **(given | options))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound folder of each kind."""
    made = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        make_text(folder)
        preprocess(config_of(kind, folder))
        made[kind] = folder / "corpus"
    return made


def contents(folder: Path, verify: Verify) -> dict[str, Any]:
    """Everything that a run can learn of a corpus."""
    (corpus,) = open_corpora([folder], verify)
    found: dict[str, Any] = {"splits": sorted(corpus.splits), "vocabularies": corpus.pair.digest(), "sides": []}
    for tokenizer in (corpus.pair.source, corpus.pair.target):
        found["sides"].append(
            [tokenizer.vocabulary.pieces, [ids.tolist() for ids in tokenizer.encode(SOURCE + TARGET)]]
        )
    found["languages"] = corpus.pair.source_lang, corpus.pair.target_lang
    for name in corpus.splits:
        split = chain([corpus.split(name)])
        assert split.targets is not None
        rows = {"sources": split.sources, "targets": split.targets} | (
            {} if split.alignments is None else {"alignments": split.alignments}
        )
        for side, some in rows.items():
            found[f"{name} {side}"] = [some[number].tolist() for number in range(len(split))]
        texts = StoredPairs([corpus], name)
        found[f"{name} text"] = [texts[number] for number in range(len(split))]
        found[f"{name} lines"] = [split.sources.text(), split.targets.text()]
        found[f"{name} identity"] = corpus.fingerprint(name), text_identity(corpus, name)
    return found


def has_shape(found: dict[str, Any], sound: dict[str, Any]) -> bool:
    """Whether there are as many sentences as there were, each with an end, of ids that exist."""
    sizes = [len(pieces) for pieces, _ in sound["sides"]]
    for name in found["splits"]:
        for side, size in zip(("sources", "targets"), sizes):
            rows = found[f"{name} {side}"]
            if len(rows) != len(sound[f"{name} {side}"]) or not all(row[-1] == EOS for row in rows):
                return False
            if not all(0 <= number < size for row in rows for number in row):
                return False
    return bool(found["splits"] == sound["splits"])


def damaged_files(folder: Path, seed: int, number: int, note: Callable[[object], None]) -> Iterator[tuple[str, bytes]]:
    """Each file is damaged so many times, and once is not there."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole, name = path.read_bytes(), path.relative_to(folder).as_posix()
        path.unlink()
        note(f"{name} is missing")
        yield name, b""
        for count, content in enumerate(mutations(whole, seed, number)):
            note(f"mutation {count} of {name}: {content!r}")
            path.unlink(missing_ok=True)  # what is mapped stays what it is
            path.write_bytes(content)
            yield name, content
        path.unlink()
        path.write_bytes(whole)


def check_corpus(folder: Path, seed: int, number: int, note: Callable[[object], None]) -> None:
    sound = contents(folder, Verify.full)
    for name, _ in damaged_files(folder, seed, number, note):
        for verify in Verify:
            try:
                found = contents(folder, verify)
            except NMTError as error:
                assert str(error)
                continue
            if verify is Verify.full or not name.endswith((".tokens.npy", ".alignments.npy", ".txt")):
                assert found == sound, f"{verify} of {name}"
            else:
                assert has_shape(found, sound), f"{verify} of {name}"


def check_shards(folder: Path, seed: int, number: int, note: Callable[[object], None]) -> None:
    """What is joined of damaged shards is what is joined of sound ones."""

    def merged() -> dict[str, Any]:
        shutil.rmtree(folder / "joined", ignore_errors=True)
        preprocess(PreprocessConfig(merge=str(folder / "parts"), destdir=str(folder / "joined")))
        return contents(folder / "joined", Verify.full) | {"report": Corpus.open(folder / "joined").report}

    sound = merged()
    for name, _ in damaged_files(folder / "parts" / "shard-1-of-2", seed, number, note):
        try:
            found = merged()
        except NMTError as error:
            assert str(error) and not (folder / "joined").exists()
            continue
        assert found == sound, name


def make_shards(folder: Path, given: Path) -> None:
    make_text(folder)
    for number in (1, 2):
        shard = {"shard": f"{number}/2", "srcdict": str(given), "tgtdict": str(given), "destdir": str(folder / "parts")}
        filters = FilterConfig(drop_duplicates=True, max_length=9)
        preprocess(config_of("words", folder, filters=filters, **shard))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_corpus_is_refused_or_what_it_was(kind: str, corpora: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(corpora[kind], tmp_path / "corpus")
    wrong = in_a_child(lambda note: check_corpus(folder, 1, 8, note), tmp_path / "report")
    assert not wrong, wrong


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("kind", KINDS)
def test_a_much_damaged_corpus_is_refused_or_what_it_was(
    kind: str, seed: int, corpora: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(corpora[kind], tmp_path / "corpus")
    wrong = in_a_child(lambda note: check_corpus(folder, seed, 60, note), tmp_path / "report")
    assert not wrong, wrong


def test_a_damaged_shard_is_refused_or_what_it_was(corpora: dict[str, Path], tmp_path: Path) -> None:
    make_shards(tmp_path, corpora["words"])
    wrong = in_a_child(lambda note: check_shards(tmp_path, 1, 4, note), tmp_path / "report")
    assert not wrong, wrong


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 5))
def test_a_much_damaged_shard_is_refused_or_what_it_was(seed: int, corpora: dict[str, Path], tmp_path: Path) -> None:
    make_shards(tmp_path, corpora["words"])
    wrong = in_a_child(lambda note: check_shards(tmp_path, seed, 60, note), tmp_path / "report")
    assert not wrong, wrong
