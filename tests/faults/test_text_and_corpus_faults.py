"""The fault catalogue for text and what is made of it: each fault, the exit status and what the user is told.

The numbers are those of the catalogue. A fault with status 0 is survived, and mentioned where the catalogue says so.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import CharConfig, WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from tests.faults.parallel_task import SOURCE, TARGET, Task, outcome, snapshot, surplus_line


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


@dataclass(frozen=True)
class Fault:
    number: int
    name: str
    spoil: Callable[[Task], object]
    status: int
    says: str | None = None  # a regular expression; None: nothing needs to be said
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.number}-{self.name.replace(' ', '-')}"


def pack(task: Task, name: str, cut: int = 0, how: str = "gz") -> None:
    content = {"gz": gzip, "xz": lzma}[how].compress((task.folder / name).read_bytes())
    (task.folder / name).unlink()
    task.write(f"{name}.{how}", content[: len(content) - cut])


def bomb(task: Task) -> None:
    """As large as a file has to be to be taken for one."""
    (task.folder / "train.en").unlink()
    task.write("train.en.gz", gzip.compress((b"x" * (2**20 - 1) + b"\n") * 16) * 17)


def in_place_of(task: Task, name: str, make: Callable[[Path], object]) -> None:
    (task.folder / name).unlink()
    make(task.folder / name)


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket must be short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def long_line(task: Task) -> None:
    task.write("train.en", [*SOURCE[:3], "one " * 100_000, *SOURCE[4:]])


def repeat_training_text(task: Task) -> None:
    task.write("valid.en", SOURCE[:2])
    task.write("valid.de", TARGET[:2])


def one_file_twice(task: Task) -> None:
    in_place_of(task, "train.de", lambda path: path.symlink_to(task.folder / "train.en"))


def with_notes(task: Task) -> None:
    task.make()
    task.write("corpus/notes.txt", ["mine"])


SKIP, REPLACE = ("--on-invalid-utf8", "skip"), ("--on-invalid-utf8", "replace")
BPE_TOO_LARGE = ("tokenizer=bpe", "--vocab-size", "900")

SPECIALS = ["</s>", "<s>", "<unk>", "<pad>", "\u2581"]
BREAKS = ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\r"]

WHEN_PREPROCESSING = [
    Fault(1, "line counts differ", surplus_line, 65, r"train\.en has 18 lines, but .*train\.de has 19.* near line 6"),
    Fault(
        2,
        "invalid utf-8",
        lambda t: t.change("train.de", b"TREE", b"TR\xc3E"),
        65,
        r"train\.de:1:10: byte 0xc3 is not UTF-8",
    ),
    Fault(
        2,
        "invalid utf-8 in the test set",
        lambda t: t.change("valid.en", b"red", b"\xff"),
        65,
        r"valid\.en:1:5: byte 0xff",
    ),
    Fault(
        2,
        "invalid utf-8 skipped",
        lambda t: t.change("train.de", b"TREE", b"TR\xff"),
        0,
        "1 dropped: bytes that are not text",
        SKIP,
    ),
    Fault(
        2,
        "invalid utf-8 replaced",
        lambda t: t.change("train.de", b"TREE", b"TR\xff"),
        0,
        r"replaced bytes that are not text with U\+FFFD in 1 line",
        REPLACE,
    ),
    Fault(3, "nul", lambda t: t.change("train.en", b"red", b"r\0d"), 65, r"train\.en:1:5: byte 0x00 is NUL"),
    Fault(
        4, "crlf", lambda t: t.write("train.en", "\r\n".join(SOURCE).encode()), 0, r"train\.en: line 1 ends in CR LF"
    ),
    Fault(5, "bare carriage return", lambda t: t.change("train.en", b"red", b"r\rd"), 0, "18 of 18 pairs kept"),
    Fault(7, "byte-order mark", lambda t: t.change("train.en", b"one", b"\xef\xbb\xbfone"), 0, "byte-order mark"),
    Fault(
        7,
        "utf-16",
        lambda t: t.write("train.en", "\n".join(SOURCE).encode("utf-16")),
        65,
        r"train\.en looks like UTF-16",
    ),
    Fault(
        8,
        "empty line",
        lambda t: t.change("train.en", b"one red tree\n", b"\n"),
        0,
        r"1 dropped: empty source \(first in line 1\)",
    ),
    Fault(
        8,
        "mostly empty lines",
        lambda t: t.write("train.en", [*SOURCE[:8], *[""] * 10]),
        65,
        "10 of 18 train pairs would be dropped",
    ),
    Fault(
        10,
        "no line feed at the end",
        lambda t: t.write("train.en", "\n".join(SOURCE).encode()),
        0,
        "18 of 18 pairs kept",
    ),
    Fault(11, "empty file", lambda t: t.write("train.de", b""), 65, r"train\.de is empty"),
    Fault(12, "very long line", long_line, 0, r"1 dropped: longer than filters\.max_length \(first in line 4\)"),
    Fault(
        14,
        "no line break",
        lambda t: t.write("train.en", b"x" * 999),
        65,
        r"train\.en:1: no line break in the 500 bytes",
        ("--max-line-bytes", "500"),
    ),
    Fault(17, "packed text", lambda t: pack(t, "train.en"), 0, "18 of 18 pairs kept"),
    Fault(17, "packed with xz", lambda t: pack(t, "train.en", how="xz"), 0, "18 of 18 pairs kept"),
    Fault(
        17,
        "truncated gzip",
        lambda t: pack(t, "train.en", cut=12),
        65,
        r"unexpected end of compressed file .*train\.en\.gz after",
    ),
    Fault(
        17,
        "damaged zstd",
        lambda t: t.write("train.en", b"\x28\xb5\x2f\xfd" + b"x" * 40),
        65,
        r"compressed file .*train\.en is damaged after 0 lines",
    ),
    Fault(18, "gzip bomb", bomb, 65, "decompresses to more than 500 times its size"),
    Fault(
        19,
        "missing file",
        lambda t: in_place_of(t, "train.en", lambda path: None),
        66,
        r"train\.en\.gz or \.xz or \.zst exists \(working directory: /",
    ),
    Fault(
        19, "folder", lambda t: in_place_of(t, "train.en", Path.mkdir), 66, r"train\.en is a folder \(working directory"
    ),
    Fault(19, "pipe", lambda t: in_place_of(t, "train.en", os.mkfifo), 66, r"train\.en is a pipe"),
    Fault(19, "socket", lambda t: in_place_of(t, "train.en", listen), 66, r"train\.en is not a plain file"),
    Fault(
        23,
        "validation text stands in train",
        repeat_training_text,
        0,
        "valid overlaps train: 2 of its pairs and 2 of its sources",
    ),
    Fault(24, "one file on both sides", one_file_twice, 0, "are the same file"),
    Fault(
        25,
        "everything filtered",
        lambda t: None,
        65,
        r"18 of 18 train pairs would be dropped: 18 longer than filters\.max_length",
        ("--max-length", "2"),
    ),
    Fault(
        33,
        "vocabulary too large",
        lambda t: None,
        2,
        r"vocab_size=900 .* --vocab-size \d+ or less.*hard_vocab_limit=false",
        BPE_TOO_LARGE,
    ),
    Fault(36, "destination not empty", lambda t: t.make(), 73, "corpus exists and is not empty"),
    Fault(
        36,
        "file of the user in the destination",
        with_notes,
        73,
        r"corpus holds files that do not belong to a corpus, such as notes\.txt; --overwrite replaces a whole corpus only",
        ("--overwrite",),
    ),
]


@pytest.mark.parametrize("fault", WHEN_PREPROCESSING, ids=str)
def test_a_fault_of_the_text_ends_with_its_status_and_message(fault: Fault, task: Task) -> None:
    fault.spoil(task)
    before = snapshot(task.folder)
    status, told = task.run(*fault.options)
    assert (status, bool(fault.says is None or re.search(fault.says, told))) == (fault.status, True), told
    assert "Traceback" not in told
    if status != 0:
        assert told.splitlines()[-1].startswith("nmt-preprocess: ")
        assert snapshot(task.folder) == before, "something was written, or lost"


# --- what is survived without a word must leave the text as it was


def test_fault_6_a_character_that_looks_like_a_line_break_is_none(task: Task) -> None:
    for character, line in zip(BREAKS, SOURCE):
        task.change("train.en", line.encode(), line.replace(" ", character).encode())
    task.write("valid.en", [f"one{''.join(BREAKS)}two"])
    assert task.run("--tokenizer", "char")[0] == 0
    corpus = Corpus.open(task.folder / "corpus")
    assert len(corpus.split("train")) == 18
    assert corpus.split("valid").sources.text() == [f"one{''.join(BREAKS)}two"]
    train = corpus.split("train")
    assert [corpus.pair.source.decode(train.source(number).tolist()) for number in range(len(train))] == SOURCE


@pytest.mark.parametrize("tokenizer", ["bpe", "char", "words"])
def test_fault_15_text_that_spells_a_special_stays_text(tokenizer: str, task: Task) -> None:
    spelled = dict(zip([n for n, line in enumerate(SOURCE) if "red" in line], SPECIALS))
    task.write("train.en", [line.replace("red", spelled.get(n, "red")) for n, line in enumerate(SOURCE)])
    assert task.run("--tokenizer", tokenizer, *(("--vocab-size", "50") if tokenizer == "bpe" else ()))[0] == 0
    corpus = Corpus.open(task.folder / "corpus")
    for number, special in spelled.items():
        pieces = corpus.split("train").source(number).tolist()[:-1]
        assert not {0, 1, 2, 3} & set(pieces)
        shown = "" if (tokenizer, special) == ("bpe", "\u2581") else special  # sentencepiece's own space
        assert corpus.pair.source.decode(pieces).split() == SOURCE[number].replace("red", shown).split()


@pytest.mark.parametrize(
    "tokenizer", [BpeConfig(vocab_size=40), CharConfig(), WordsConfig()], ids=lambda c: type(c).__name__
)
def test_fault_16_a_lone_surrogate_from_python_is_bad_data(tokenizer: Any, task: Task) -> None:
    corpus = task.make(tokenizer=tokenizer)
    status, message = outcome(lambda: corpus.pair.source.encode(["one\udcff"]))
    assert status == 65 and "U+DCFF" in message
