"""Writing a corpus folder, one chunk of sentences after the other; see ``nmt.data.corpus`` for its files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nmt.data.corpus import KIND, Ids, Lengths
from nmt.data.encoding import EncodedSide, token_type
from nmt.data.vocabulary import Vocabulary
from nmt.storage import destination

Writer = TypeVar("Writer", bound="ArrayWriter")


def check_destination(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything, or with ``overwrite`` anything that is not of a corpus."""
    destination.check_destination(folder, KIND, "--destdir", overwrite=overwrite)


class ArrayWriter:
    """Writes an array of values of many sentences, and where each begins, while their size is still unknown."""

    def __init__(self, path: Path, offsets_path: Path, dtype: np.dtype[Any]) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by `close`
        self._offsets_path = offsets_path
        self._dtype = dtype
        self._lengths: list[Lengths] = []
        self._file.write(_array_header(self._dtype, 0))

    def append(self, values: Ids, lengths: Lengths) -> None:
        """The values of some sentences one after the other, and how many each has."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._lengths.append(lengths)

    def close(self) -> None:
        """Fill in the sizes. Until then the file says that it is empty."""
        lengths = np.concatenate([np.zeros(1, dtype=np.int64), *self._lengths])
        offsets = np.cumsum(lengths)
        self._file.seek(0)
        self._file.write(_array_header(self._dtype, int(offsets[-1])))
        self._file.close()
        with open(self._offsets_path, "wb") as file:
            np.save(file, offsets)

    def __enter__(self: Writer) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


class SentenceWriter(ArrayWriter):
    """Writes the two arrays of one language of a split."""

    def __init__(self, folder: Path, stem: str, vocabulary: Vocabulary) -> None:
        tokens, offsets = folder / f"{stem}.tokens.npy", folder / f"{stem}.offsets.npy"
        super().__init__(tokens, offsets, np.dtype(token_type(vocabulary)))

    def write(self, side: EncodedSide) -> None:
        self.append(side.tokens, side.lengths)


def _array_header(dtype: np.dtype[Any], count: int) -> bytes:
    """The first 128 bytes of an .npy file (format 1.0), the same length whatever the count is."""
    description = repr({"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + description.ljust(117).encode("ascii") + b"\n"


def write_text(path: Path, lines: Iterable[str | None]) -> None:
    """One line each; a line that was left out is empty, so the line count holds."""
    with open(path, "wb") as file:
        for line in lines:
            file.write((line or "").encode("utf-8") + b"\n")
