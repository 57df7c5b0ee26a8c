"""The fault catalogue for corpora and vocabularies on disk; the numbers are those of the catalogue."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.data.corpus import Corpus, open_corpora
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.storage.files import Verify
from tests.faults.parallel_task import SOURCE, Task, outcome


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def resize(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size + by)


def edit_manifest(corpus: Path, **facts: Any) -> None:
    path = corpus / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | facts), encoding="utf-8")


def high_id(corpus: Path) -> None:
    array = np.load(corpus / "train.en.tokens.npy")
    array[2] = 60_000
    np.save(corpus / "train.en.tokens.npy", array)


@dataclass(frozen=True)
class Damage:
    number: int
    name: str
    spoil: Callable[[Path], object]
    says: str
    verify: Verify = Verify.fast
    status: int = 65

    def __str__(self) -> str:
        return f"{self.number}-{self.name.replace(' ', '-')}"


WHEN_OPENING = [
    Damage(
        26, "truncated tokens", lambda c: resize(c / "train.en.tokens.npy", -2), r"train\.en\.tokens\.npy is damaged"
    ),
    Damage(
        26, "empty tokens", lambda c: os.truncate(c / "train.en.tokens.npy", 0), r"train\.en\.tokens\.npy is damaged"
    ),
    Damage(
        27, "truncated offsets", lambda c: resize(c / "train.de.offsets.npy", -8), r"train\.de\.offsets\.npy is damaged"
    ),
    Damage(
        27, "longer offsets", lambda c: resize(c / "train.de.offsets.npy", 8), r"train\.de\.offsets\.npy is damaged"
    ),
    Damage(28, "flipped byte", lambda c: flip(c / "train.en.tokens.npy"), "its checksum differs", Verify.full),
    Damage(28, "flipped byte of the index", lambda c: flip(c / "train.en.offsets.npy"), "its checksum differs"),
    Damage(28, "id beyond the vocabulary", high_id, r"sentence 1 holds id 60000, beyond \d+ pieces"),
    Damage(
        29,
        "newer format",
        lambda c: edit_manifest(c, format=9, written_by="nmt 7"),
        r"written by nmt 7 in format 9; this is nmt .* format 1",
    ),
    Damage(
        29,
        "another kind of folder",
        lambda c: edit_manifest(c, kind="checkpoint"),
        "holds no corpus; .* kind='checkpoint'",
    ),
    Damage(32, "damaged vocabulary", lambda c: flip(c / "tokenizer" / "source.json"), r"source\.json is damaged"),
    Damage(
        35,
        "unfinished corpus",
        lambda c: (c / "manifest.json").unlink(),
        "holds no corpus: manifest.json is missing",
        status=66,
    ),
]


@pytest.mark.parametrize("damage", WHEN_OPENING, ids=str)
def test_a_damaged_corpus_is_refused_with_its_status_and_message(damage: Damage, task: Task) -> None:
    folder = task.make().folder
    damage.spoil(folder)
    status, message = outcome(lambda: Corpus.open(folder, damage.verify).split("train"))
    assert status == damage.status
    assert re.search(damage.says, message), message


def test_fault_30_corpora_of_different_vocabularies_are_refused(task: Task) -> None:
    one = task.make().folder
    task.change("train.en", b"red", b"blue")
    other = task.make(destdir=f"{task.folder}/other").folder
    status, message = outcome(lambda: open_corpora([one, other]))
    assert status == 65 and "different vocabularies" in message


def test_fault_31_text_that_changed_since_is_mentioned(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    folder = task.make().folder
    task.change("train.en", b"red", b"read")
    with caplog.at_level(logging.WARNING, logger="nmt"):
        Corpus.open(folder)
    assert "train.en has changed since" in caplog.text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"one\ntwo\none\n", r"dict:3: 'one' stands in line 1 already"),
        (b"one\n\ntwo\n", r"dict:2: '' is not one word"),
        (b"one\ntwo\xff\n", r"dict:2: bytes that are not UTF-8"),
    ],
)
def test_fault_32_a_bad_vocabulary_is_refused_with_its_line(content: bytes, says: str, task: Task) -> None:
    task.write("dict", content)
    status, message = outcome(lambda: task.make(srcdict=f"{task.folder}/dict"))
    assert status == 65
    assert re.search(says, message), message


def test_fault_32_carriage_returns_in_a_vocabulary_do_no_harm(task: Task) -> None:
    task.write("dict", b"one\r\ntwo\r\n")
    assert task.make(srcdict=f"{task.folder}/dict").pair.source.vocabulary.pieces[4:] == ("one", "two")


@pytest.mark.parametrize("content", [b"", b"\x0a\xff\xff\xff\xff\x0f", b"one\ntwo\n", bytes(range(256)) * 8])
def test_fault_34_a_damaged_sentencepiece_model_is_refused(content: bytes, task: Task) -> None:
    task.write("bad.model", content)
    status, message = outcome(lambda: task.make(srcdict=f"{task.folder}/bad.model", tokenizer=BpeConfig()))
    assert status == 65 and "damaged" in message


def test_fault_34_a_model_that_crashes_the_library_does_not_crash_us(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.data.tokenizers.sentencepiece._CHECK", "import os; os.abort()")
    task.write("hostile.model", b"x")
    status, message = outcome(lambda: task.make(srcdict=f"{task.folder}/hostile.model", tokenizer=BpeConfig()))
    assert status == 65 and "tokenizer file" in message and "damaged" in message


def test_fault_37_a_mapped_corpus_survives_its_replacement(task: Task) -> None:
    train = task.make().split("train")
    before = [train.source(index).tolist() for index in range(len(train))]
    task.write("train.en", [line.replace("red", "a very long word list") for line in SOURCE])
    task.make(overwrite=True)
    assert [train.source(index).tolist() for index in range(len(train))] == before
