"""The text of sentence pairs in a corpus folder, stored by ``nmt-preprocess --keep-text``.

<split>.<lang>.txt                  the lines of the kept pairs, as they were read
<split>.<lang>.text-offsets.npy     the first byte of each line, and the end of the last
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from nmt.data.corpus.folder import Corpus
from nmt.errors import DataError, quantity
from nmt.storage.arrays import map_integers
from nmt.storage.files import MANIFEST


def text_files(split: str, language: str) -> tuple[str, str]:
    """Return the names of the files of lines and offsets."""
    return f"{split}.{language}.txt", f"{split}.{language}.text-offsets.npy"


def write_text(folder: Path, split: str, language: str, lines: Iterable[str], *, offsets: bool) -> None:
    """Write clean UTF-8 with a line feed only after each line, and optionally the offsets."""
    text, ends = (folder / name for name in text_files(split, language))
    sizes = array("q", [0])
    with open(text, "wb") as file:
        for line in lines:
            sizes.append(file.write(line.encode() + b"\n"))
    if offsets:
        np.save(ends, np.cumsum(np.frombuffer(sizes, dtype=np.int64)))


class StoredLines:
    """One language of a split on disk, mapped into memory."""

    def __init__(self, folder: Path, split: str, language: str) -> None:
        self._path, offsets = (folder / name for name in text_files(split, language))
        self._offsets = map_integers(offsets)
        size = self._path.stat().st_size
        if len(self._offsets) == 0 or self._offsets[0] != 0 or self._offsets[-1] != size:
            raise DataError(f"{offsets} is damaged: its offsets do not divide the {size} bytes of text into lines")
        self._bytes = np.memmap(self._path, np.uint8, "r") if size else np.zeros(0, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> str:
        begin, end = self._offsets[index : index + 2].tolist()
        line = self._bytes[begin:end].tobytes()
        if line.find(b"\n") != len(line) - 1 or not line:
            raise DataError(f"{self._path} is damaged: the line from byte {begin} on does not end where it should")
        try:
            return line[:-1].decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{self._path} is damaged: byte {begin + error.start} is not UTF-8") from None


class StoredPairs:
    """The concatenated text of a split of several corpora."""

    def __init__(self, corpora: Sequence[Corpus], split: str) -> None:
        corpora = [part for corpus in corpora for part in corpus.parts if split in part.splits]
        without = [corpus for corpus in corpora if set(_files(corpus, split)) - set(corpus.manifest["files"])]
        if without:
            folders = ", ".join(str(corpus.folder) for corpus in without)
            raise DataError(
                f"variation.augment (--augment) needs the text of split '{split}', but {folders} stores only its tokens; "
                f"make the corpus again with nmt-preprocess --keep-text"
            )
        self._parts = [
            tuple(StoredLines(corpus.folder, split, language) for language, _ in corpus.pair.sides())
            for corpus in corpora
        ]
        self._starts = [0, *itertools.accumulate(len(source) for source, _ in self._parts)]
        for corpus, (source, target) in zip(corpora, self._parts):
            pairs = len(corpus.split(split))
            if not len(source) == len(target) == pairs:
                counts = f"{quantity(len(source), 'source')} and {quantity(len(target), 'target')}"
                raise DataError(
                    f"{corpus.folder / MANIFEST}: split '{split}' has {quantity(pairs, 'pair')}, but text of {counts}"
                )

    def __getitem__(self, index: int) -> tuple[str, str]:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        source, target = self._parts[part]
        return source[index - self._starts[part]], target[index - self._starts[part]]


def text_identity(corpus: Corpus, split: str) -> str:
    """Return checksums that identify the text of a split."""
    parts = [part for part in corpus.parts if split in part.splits]
    names = [(part, name) for part in parts for name in _files(part, split) if name.endswith(".txt")]
    return " ".join(part.manifest["files"][name]["sha256"] for part, name in names)


def _files(corpus: Corpus, split: str) -> list[str]:
    return [name for language, _ in corpus.pair.sides() for name in text_files(split, language)]
