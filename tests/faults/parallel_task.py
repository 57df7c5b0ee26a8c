"""A small parallel text on disk, to be spoiled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.config.preprocessing import PreprocessConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.errors import NMTError
from nmt.preprocessing.preprocess import preprocess
from tests.commands import run_copy

SOURCE = [f"{a} {b} {c}" for a in ("one", "two", "three") for b in ("red", "green") for c in ("tree", "house", "car")]
TARGET = [line.upper() for line in SOURCE]


class Task:
    """A folder with sound text, to be spoiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for split in ("train", "valid"):
            self.write(f"{split}.en", SOURCE if split == "train" else ["nine red tree"])
            self.write(f"{split}.de", TARGET if split == "train" else ["NINE RED TREE"])
        self.config = PreprocessConfig(
            source_lang="en",
            target_lang="de",
            trainpref=f"{folder}/train",
            validpref=f"{folder}/valid",
            destdir=f"{folder}/corpus",
            tokenizer=WordsConfig(),
        )

    def write(self, name: str, content: bytes | list[str]) -> None:
        data = content if isinstance(content, bytes) else "".join(f"{line}\n" for line in content).encode()
        (self.folder / name).write_bytes(data)

    def change(self, name: str, old: bytes, new: bytes) -> None:
        """Replace the first occurrence."""
        data = (self.folder / name).read_bytes()
        assert old in data
        self.write(name, data.replace(old, new, 1))

    def arguments(self, *more: str) -> list[str]:
        """Of nmt-preprocess; words are its tokenizer if no other is named."""
        given = ["--source-lang", "en", "--target-lang", "de", "--trainpref", f"{self.folder}/train"]
        given += ["--validpref", f"{self.folder}/valid", "--destdir", f"{self.folder}/corpus"]
        return [*given, *([] if any("tokenizer" in word for word in more) else ["--tokenizer", "words"]), *more]

    def run(self, *more: str, **surroundings: Any) -> tuple[int, str]:
        """Status and log of nmt-preprocess."""
        done = run_copy("preprocess", *self.arguments(*more), **surroundings)
        assert done.stdout == b""
        return done.returncode, done.stderr.decode()

    def make(self, **options: Any) -> Corpus:
        report = preprocess(replace(self.config, **options))
        for line in report.lines():
            logging.getLogger("nmt").info(line)
        for warning in report.warnings():
            logging.getLogger("nmt").warning(warning)
        return Corpus.open(Path(report.folder))


def outcome(action: Callable[[], object]) -> tuple[int, str]:
    """Exit status and message of what a command would do."""
    try:
        action()
    except NMTError as error:
        return error.exit_status, str(error)
    return 0, ""


def snapshot(folder: Path) -> dict[Path, bytes | None]:
    """What stands in a folder: the content of files, None of all else."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def surplus_line(task: Task) -> None:
    task.write("train.de", [*TARGET[:5], "SURPLUS LINE OF ANOTHER LENGTH ALTOGETHER", *TARGET[5:]])
