"""The fault catalogue for corpora and vocabularies on disk; the numbers are those of the catalogue."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.data.corpus.folder import Corpus, open_corpora
from nmt.storage.files import Verify
from tests.commands import run_copy
from tests.faults.parallel_task import Task, outcome

TINY = (
    "model=lstm model.embedding_size=8 model.hidden_size=8 --max-update 1 --valid-samples 0 --cpu --no-html --no-count-flops"
).split()


REPLACING_AT_UPDATE_3 = """
import subprocess
from nmt.training.loop.trainer import Trainer
decide = Trainer._decide

def replaces(self, batches, applied):
    if self.state.update == 3:
        subprocess.run({preprocess}, check=True, capture_output=True)
        open({seen!r}, "w").close()
    return decide(self, batches, applied)

Trainer._decide = replaces
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


def trained(*corpora: Path, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Status and log of nmt-train, which is to make one update; what it says last if it fails."""
    run = corpora[0].parent / "run"
    done = run_copy("train", *corpora, *TINY, *options, "--save-dir", run)
    said = done.stderr.decode()
    assert done.stdout == b"" and "Traceback" not in said
    if done.returncode:
        assert not list(run.glob("checkpoint-*")) and said.splitlines()[-1].startswith("nmt-train: ")
    return done.returncode, said if done.returncode == 0 else said.splitlines()[-1]


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
    Damage(28, "id beyond the vocabulary", high_id, r"sentence 1 holds id 60000, but the vocabulary has \d+ tokens"),
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
        "holds no corpus: manifest.json is missing; choose another folder, or write this one again",
        status=66,
    ),
]


def opened(folder: Path, verify: Verify) -> None:
    """As training and translating open a corpus."""
    for corpus in open_corpora([folder], verify):
        for name in corpus.splits:
            corpus.split(name)


@pytest.mark.parametrize("damage", WHEN_OPENING, ids=str)
def test_a_damaged_corpus_is_refused_with_its_status_and_message(damage: Damage, task: Task) -> None:
    folder = task.make().folder
    damage.spoil(folder)
    status, message = outcome(lambda: opened(folder, damage.verify))
    assert (status, bool(re.search(damage.says, message))) == (damage.status, True), message


@pytest.mark.parametrize("name", ["flipped byte", "id beyond the vocabulary", "unfinished corpus"])
def test_the_command_refuses_a_damaged_corpus(name: str, task: Task) -> None:
    """Found by a checksum, among the numbers, and by the lack of a manifest."""
    (damage,) = (one for one in WHEN_OPENING if one.name == name)
    folder = task.make().folder
    damage.spoil(folder)
    status, message = trained(folder, options=("--verify", damage.verify.value))
    assert (status, bool(re.search(damage.says, message))) == (damage.status, True), message


def test_fault_30_corpora_of_different_vocabularies_are_refused(task: Task) -> None:
    one = task.make().folder
    task.change("train.en", b"red", b"blue")
    other = task.make(destdir=f"{task.folder}/other").folder
    status, message = trained(one, other)
    assert status == 65 and "different vocabularies" in message


def test_faults_31_and_37_text_and_corpus_that_change_under_a_run_do_it_no_harm(task: Task) -> None:
    """The text is changed before training, which is said; the corpus is made anew while training reads it."""
    folder = task.make().folder
    task.change("train.en", b"red", b"read")
    seen = task.folder / "seen"
    preprocess = (
        f"[{sys.executable!r}, '-m', 'nmt_cli.preprocess', {', '.join(map(repr, task.arguments()))}, '--overwrite']"
    )
    before = REPLACING_AT_UPDATE_3.format(preprocess=preprocess, seen=str(seen))
    line = ("--max-update", "8", "--save-dir", str(task.folder / "run"))
    done = run_copy("train", folder, *TINY, *line, before=before)
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert "train.en has changed since" in said and seen.exists()
    assert "read" in Corpus.open(folder).pair.source.vocabulary.pieces
    undisturbed = run_copy("train", folder, *TINY, "--max-update", "9", *line[2:])
    assert undisturbed.returncode == 65 and b" and the corpus have different vocabularies" in undisturbed.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"one\ntwo\none\n", r"dict:3: 'one' is already in line 1"),
        (b"one\n\ntwo\n", r"dict:2: '' must be one word"),
        (b"one\ntwo\xff\n", r"dict:2: bytes that are not UTF-8"),
    ],
)
def test_fault_32_a_bad_vocabulary_is_refused_with_its_line(content: bytes, says: str, task: Task) -> None:
    task.write("dict", content)
    status, message = task.run("--srcdict", f"{task.folder}/dict")
    assert status == 65
    assert re.search(says, message) and message.count("\n") == 1, message


def test_fault_32_carriage_returns_in_a_vocabulary_do_no_harm(task: Task) -> None:
    task.write("dict", b"one\r\ntwo\r\n")
    assert task.run("--srcdict", f"{task.folder}/dict")[0] == 0
    assert Corpus.open(task.folder / "corpus").pair.source.vocabulary.pieces[4:] == ("one", "two")


@pytest.mark.parametrize("content", [b"", b"\x0a\xff\xff\xff\xff\x0f", b"one\ntwo\n", bytes(range(256)) * 8])
def test_fault_34_a_damaged_sentencepiece_model_is_refused(content: bytes, task: Task) -> None:
    task.write("bad.model", content)
    status, message = task.run("--srcdict", f"{task.folder}/bad.model", "tokenizer=bpe")
    assert status == 65 and "damaged" in message and message.count("\n") == 1


def test_fault_34_a_model_that_crashes_the_library_does_not_crash_us(task: Task) -> None:
    """The process that tries it is made to crash: no model that the library crashes of is known."""
    crash = "import nmt.data.tokenizers.sentencepiece_files as tried; tried._CHECK = 'import os; os.abort()'"
    task.write("hostile.model", b"x")
    status, message = task.run("--srcdict", f"{task.folder}/hostile.model", "tokenizer=bpe", before=crash)
    assert status == 65 and "tokenizer file" in message and "damaged" in message
