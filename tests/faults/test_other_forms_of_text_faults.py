"""The fault catalogue for training text that is packed, in columns, in JSON, in several files or on standard input.

What is told of two plain files (``test_text_and_corpus_faults``) is told of these by their names and lines too.
"""

from __future__ import annotations

import json
import lzma
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nmt.data.corpus.folder import Corpus
from nmt.data.text.packed_files import zstd
from tests.commands import run_copy
from tests.faults.parallel_task import SOURCE, TARGET, Task, snapshot
from tests.faults.surroundings import WITHOUT_PRIVILEGES

COLUMNS = "".join(f"{source}\t{target}\n" for source, target in zip(SOURCE, TARGET)).encode()
OBJECTS = "".join(json.dumps({"en": source, "de": target}) + "\n" for source, target in zip(SOURCE, TARGET)).encode()
BOTH = ("--source-lang", "en", "--target-lang", "de", "--tokenizer", "words")


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


@dataclass(frozen=True)
class Form:
    """How the training text is given. ``spoiled``: which of its files is damaged, standard input if it is ``-``."""

    name: str
    options: tuple[str, ...]
    files: dict[str, bytes]
    spoiled: str
    called: str  # by messages

    def __str__(self) -> str:
        return self.name

    def run(self, task: Task, content: bytes | None, *more: str, before: str = "") -> tuple[int, str]:
        """Status and log of nmt-preprocess, which writes nothing if it fails; None: the file is not there."""
        for path in task.folder.glob("train.*"):
            path.unlink()
        for name, sound in self.files.items():
            if name not in ("-", self.spoiled):
                task.write(name, sound)
        if self.spoiled != "-" and content is not None:
            task.write(self.spoiled, content)
        line = (*BOTH, *self.options, "--validpref", "valid", "--destdir", "corpus", *more)
        stdin, there = (content or b"") if self.spoiled == "-" else b"", snapshot(task.folder)
        done = run_copy("preprocess", *line, cwd=task.folder, stdin=stdin, before=before)
        said = done.stderr.decode()
        assert done.stdout == b"" and "Traceback" not in said, said
        if done.returncode:
            assert said.splitlines()[-1].startswith("nmt-preprocess: ")
            assert snapshot(task.folder) == there, "something was written, or lost"
        return done.returncode, said

    @property
    def sound(self) -> bytes:
        return self.files[self.spoiled]


FORMS = [
    Form("columns", ("--trainpref", "train.tsv"), {"train.tsv": COLUMNS}, "train.tsv", "train.tsv"),
    Form("objects", ("--trainpref", "train.jsonl"), {"train.jsonl": OBJECTS}, "train.jsonl", "train.jsonl"),
    Form("standard-input", ("--tsv", "-"), {"-": COLUMNS}, "-", "standard input"),
    Form(
        "second-of-several",
        ("--trainpref", "train.jsonl,train.tsv"),
        {"train.jsonl": OBJECTS, "train.tsv": COLUMNS},
        "train.tsv",
        "train.tsv",
    ),
]
OF_ALL_FORMS = pytest.mark.parametrize("form", FORMS, ids=str)
WHOLE = r"train: (18 of 18|36 of 36) pairs kept"


@dataclass(frozen=True)
class Fault:
    number: int
    name: str
    spoil: Callable[[bytes], bytes | None]
    status: int
    says: str  # a regular expression; NAME is what messages call the file
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.number}-{self.name.replace(' ', '-')}"


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """In the second line."""

    def spoil(content: bytes) -> bytes:
        first, second, rest = content.split(b"\n", 2)
        assert old in second
        return b"\n".join((first, second.replace(old, new, 1), rest))

    return spoil


SKIP, REPLACE = ("--on-invalid-utf8", "skip"), ("--on-invalid-utf8", "replace")
FAULTS = [
    Fault(
        1,
        "no pair on a line",
        replaced(b"one red house", b"x"),
        65,
        r"NAME:2: (no column 2, only 1 tab-separated column|.* is not JSON)",
    ),
    Fault(2, "invalid utf-8", replaced(b"red", b"r\xffd"), 65, r"NAME:2:\d+: byte 0xff is not UTF-8 \(byte \d+ of"),
    Fault(2, "skipped", replaced(b"red", b"r\xffd"), 0, r"1 dropped: bytes that are not text", SKIP),
    Fault(2, "replaced", replaced(b"red", b"r\xffd"), 0, r"NAME: replaced bytes .* with U\+FFFD in 1 line", REPLACE),
    Fault(3, "nul", replaced(b"red", b"r\0d"), 65, r"NAME:2:\d+: byte 0x00 is NUL"),
    Fault(4, "crlf", lambda content: content.replace(b"\n", b"\r\n"), 0, r"NAME: line 1 ends in CR LF"),
    Fault(7, "byte-order mark", lambda content: b"\xef\xbb\xbf" + content, 0, r"NAME: removed the byte-order mark"),
    Fault(7, "utf-16", lambda content: content.decode().encode("utf-16"), 65, r"NAME looks like UTF-16"),
    Fault(10, "no line feed at the end", lambda content: content[:-1], 0, WHOLE),
    Fault(11, "empty", lambda content: b"", 65, r"NAME is empty"),
    Fault(
        14,
        "no line break",
        lambda content: b"x" * 999,
        65,
        r"NAME:1: no line break in the 500 bytes",
        ("--max-line-bytes", "500"),
    ),
]


@OF_ALL_FORMS
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_of_a_file_with_both_sides_is_told_by_its_line(fault: Fault, form: Form, task: Task) -> None:
    if (fault.number, form.name) == (1, "objects"):
        fault = Fault(1, fault.name, replaced(b'"en": ', b'"en" '), 65, fault.says)
    elif fault.number == 1:
        fault = Fault(1, fault.name, replaced(b"\t", b" "), 65, fault.says)
    status, said = form.run(task, fault.spoil(form.sound), *fault.options)
    says = fault.says.replace("NAME", re.escape(form.called))
    assert (status, bool(re.search(says, said))) == (fault.status, True), said
    if status == 0:
        assert_no_pair_has_shifted(task)


def assert_no_pair_has_shifted(task: Task) -> None:
    """A target is its source in capitals; what is replaced or skipped stands in one source."""
    corpus = Corpus.open(task.folder / "corpus")
    train = corpus.split("train")
    sources = [corpus.pair.source.decode(train.source(number).tolist()) for number in range(len(train))]
    targets = [corpus.pair.target.decode(train.target(number).tolist()) for number in range(len(train))]
    assert len(train) >= 17 and sources[-1] == SOURCE[-1]
    for source, target in zip(sources, targets):
        assert source.upper() == target or ("\ufffd" in source and target == TARGET[1])


@pytest.mark.parametrize(
    ("number", "line", "says"),
    [
        (3, b'{"en": "a\\u0000b", "de": "A"}', r"train\.jsonl:19: field 'en' holds NUL, which is not text"),
        (16, b'{"en": "a", "de": "\\udcff"}', r"train\.jsonl:19: field 'de' holds U\+DCFF, which is not a character"),
        (
            1,
            b'{"en": "a"}',
            r"train\.jsonl:19: no field 'de'; there is en \(set the fields: --fields, --weight-field\)",
        ),
    ],
)
def test_faults_1_3_and_16_what_json_can_spell_is_refused_by_its_line(
    number: int, line: bytes, says: str, task: Task
) -> None:
    status, said = FORMS[1].run(task, OBJECTS + line + b"\n")
    assert (status, bool(re.search(says, said))) == (65, True), said


def test_fault_1_line_counts_of_the_second_of_several_pairs_of_files(task: Task) -> None:
    task.write("more.en", SOURCE)
    task.write("more.de", TARGET[:-1])
    status, said = task.run("--trainpref", f"{task.folder}/train,{task.folder}/more")
    assert status == 65 and re.search(r"more\.en has 18 lines, but .*more\.de has 17; .*seems truncated", said), said
    assert not (task.folder / "corpus").exists()


# --- what is packed

PACKED: dict[str, Callable[[bytes], bytes]] = {"xz": lzma.compress, "zst": zstd.compress}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize(
    ("spoil", "status", "says"),
    [
        (lambda content: content, 0, "train: 36 of 36 pairs kept"),
        (lambda content: content[:-7], 65, r"unexpected end of compressed file train\.tsv\.\w+ after \d+ lines"),
        (lambda content: content + b"no part at all", 65, r"file train\.tsv\.\w+ is damaged after 36 lines"),
        (lambda content: content[:9] + bytes(9) + content[18:], 65, r"train\.tsv\.\w+ is damaged after 0 lines"),
        (lambda content: b"", 65, r"train\.tsv\.\w+ is empty"),
        (lambda content: COLUMNS, 65, r"train\.tsv\.(xz|zst) is named \.\1 but is not \w+ data"),
    ],
    ids=["sound", "cut", "followed", "damaged", "empty", "plain"],
)
def test_fault_17_packed_columns(
    packed: str, spoil: Callable[[bytes], bytes], status: int, says: str, task: Task
) -> None:
    """Of two parts, as two files are put together."""
    name, content = f"train.tsv.{packed}", PACKED[packed](COLUMNS) + PACKED[packed](COLUMNS)
    found, said = Form(packed, ("--trainpref", name), {name: content}, name, name).run(task, spoil(content))
    assert (found, bool(re.search(says, said))) == (status, True), said


@pytest.mark.parametrize("fault", [one for one in FAULTS if one.number in (2, 3, 4, 7)], ids=str)
def test_faults_2_3_4_and_7_are_told_of_packed_text_as_of_plain_text(fault: Fault, task: Task) -> None:
    spoiled = fault.spoil(COLUMNS)
    assert spoiled is not None
    form = Form("zst", ("--trainpref", "train.tsv.zst"), {"train.tsv.zst": COLUMNS}, "train.tsv.zst", "train.tsv.zst")
    status, said = form.run(task, zstd.compress(spoiled), *fault.options)
    assert (status, bool(re.search(fault.says.replace("NAME", re.escape(form.called)), said))) == (
        fault.status,
        True,
    ), said


@pytest.mark.parametrize("packed", PACKED)
def test_fault_18_a_bomb_of_any_kind_is_stopped(packed: str, task: Task) -> None:
    name, content = f"train.tsv.{packed}", PACKED[packed]((b"x\t" + b"y" * (2**20 - 3) + b"\n") * 16) * 17
    status, said = Form(packed, ("--trainpref", name), {name: b""}, name, name).run(task, content)
    assert status == 65 and f"{name} decompresses to more than 500 times its size" in said, said


# --- what is no file, and standard input


@pytest.mark.parametrize("form", FORMS[:2], ids=str)
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (None, r"NAME does not exist \(working directory: /"),
        (Path.mkdir, r"NAME is a folder \(working directory: /"),
        (os.mkfifo, r"NAME is a pipe, and the text is read more than once; write it to a file"),
        (lambda path: path.touch(0), r"cannot read NAME: Permission denied \(working directory: /"),
    ],
    ids=["missing", "folder", "pipe", "closed"],
)
def test_fault_19_a_file_with_both_sides_that_is_none(
    make: Callable[[Path], object] | None, says: str, form: Form, task: Task
) -> None:
    options = ("--trainpref", f"made-{form.spoiled}")
    if make is not None:
        make(task.folder / options[1])
    spoiled = Form(form.name, options, {options[1]: b""}, options[1], options[1])
    status, said = spoiled.run(task, None, before=WITHOUT_PRIVILEGES)
    assert (status, bool(re.search(says.replace("NAME", re.escape(options[1])), said))) == (66, True), said


LINE = [sys.executable, "-m", "nmt_cli.preprocess", *BOTH, "--tsv", "-", "--validpref", "valid", "--destdir", "corpus"]


def test_fault_20_standard_input_that_is_closed_is_an_empty_one(task: Task) -> None:
    there = snapshot(task.folder)
    done = subprocess.run(
        ["bash", "-c", '"$@" <&-', "bash", *LINE], cwd=task.folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (65, "")
    assert done.stderr.startswith("nmt-preprocess: standard input is empty") and done.stderr.count("\n") == 1
    assert snapshot(task.folder) == there


def test_fault_20_at_a_terminal_it_is_said_how_to_end(task: Task) -> None:
    terminal, inside = pty.openpty()
    modes = termios.tcgetattr(inside)
    modes[3] &= ~termios.ECHO  # nobody reads what the terminal would repeat
    termios.tcsetattr(inside, termios.TCSANOW, modes)
    with subprocess.Popen(LINE, cwd=task.folder, stdin=inside, stderr=subprocess.PIPE, text=True) as process:
        os.close(inside)
        os.write(terminal, COLUMNS + b"\x04")  # Ctrl-D
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    os.close(terminal)
    assert process.returncode == 0, said
    assert (
        "reading from the terminal, one pair a line; end with Ctrl-D" in said and "train: 18 of 18 pairs kept" in said
    )
