"""The text of sentence pairs in a corpus folder, one line at a time: what ``nmt-preprocess --keep-text`` stores.

<split>.<lang>.txt                  the lines as they were read, of the pairs that are kept
<split>.<lang>.text-offsets.npy     where each line begins, in bytes, and the end of the last
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from nmt.data.corpus import Corpus
from nmt.errors import DataError
from nmt.storage.arrays import map_integers
from nmt.storage.files import MANIFEST


def text_files(split: str, language: str) -> tuple[str, str]:
    """Names of the file of lines and of its offsets."""
    return f"{split}.{language}.txt", f"{split}.{language}.text-offsets.npy"


def write_text(folder: Path, split: str, language: str, lines: Iterable[str], *, offsets: bool) -> None:
    """Clean UTF-8, and a line feed after each line and nowhere else; the offsets too if they are asked for."""
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
            raise DataError(f"{offsets} is damaged: its offsets do not cut the {size} bytes beside it into lines")
        self._bytes = np.memmap(self._path, np.uint8, "r") if size else np.zeros(0, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> str:
        begin, end = self._offsets[index : index + 2].tolist()
        line = self._bytes[begin:end].tobytes()
        if line.find(b"\n") != len(line) - 1 or not line:
            raise DataError(f"{self._path} is damaged: no line ends where that from byte {begin} on should")
        try:
            return line[:-1].decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{self._path} is damaged: byte {begin + error.start} is not UTF-8") from None


class StoredPairs:
    """The text of a split of several corpora, one after the other."""

    def __init__(self, corpora: Sequence[Corpus], split: str) -> None:
        corpora = [part for corpus in corpora for part in corpus.parts if split in part.splits]
        without = [one for one in corpora if set(_files(one, split)) - set(one.manifest["files"])]
        if without:
            folders = ", ".join(str(corpus.folder) for corpus in without)
            raise DataError(
                f"variation.augment (--augment) changes text, and of split '{split}' {folders} holds the pieces alone; "
                f"make the corpus again with nmt-preprocess --keep-text"
            )
        self._parts = [
            tuple(StoredLines(one.folder, split, language) for language in (one.pair.source_lang, one.pair.target_lang))
            for one in corpora
        ]
        self._starts = [0, *itertools.accumulate(len(source) for source, _ in self._parts)]
        for corpus, (source, target) in zip(corpora, self._parts):
            pairs = len(corpus.split(split))
            if not len(source) == len(target) == pairs:
                found = f"{len(source)} sources and {len(target)} targets"
                raise DataError(f"{corpus.folder / MANIFEST}: split '{split}' has {pairs} pairs, but text of {found}")

    def __getitem__(self, index: int) -> tuple[str, str]:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        source, target = self._parts[part]
        return source[index - self._starts[part]], target[index - self._starts[part]]


def text_identity(corpus: Corpus, split: str) -> str:
    """What the text of a split is recognised by."""
    parts = [part for part in corpus.parts if split in part.splits]
    names = [(part, name) for part in parts for name in _files(part, split) if name.endswith(".txt")]
    return " ".join(part.manifest["files"][name]["sha256"] for part, name in names)


def _files(corpus: Corpus, split: str) -> list[str]:
    languages = (corpus.pair.source_lang, corpus.pair.target_lang)
    return [name for language in languages for name in text_files(split, language)]
