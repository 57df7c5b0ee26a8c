"""Writing a corpus folder, one chunk of sentences after the other; see ``nmt.data.corpus`` for its files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.corpus import KIND, Lengths
from nmt.data.encoding import EncodedSide, token_type
from nmt.data.vocabulary import Vocabulary
from nmt.storage import destination


def check_destination(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds anything, or with ``overwrite`` anything that is not of a corpus."""
    destination.check_destination(folder, KIND, "--destdir", overwrite=overwrite)


class SentenceWriter:
    """Writes the two arrays of one language of a split while their size is still unknown."""

    def __init__(self, folder: Path, stem: str, vocabulary: Vocabulary) -> None:
        self._file = open(folder / f"{stem}.tokens.npy", "wb")  # noqa: SIM115 - closed by `close`
        self._offsets_path = folder / f"{stem}.offsets.npy"
        self._dtype = np.dtype(token_type(vocabulary))
        self._lengths: list[Lengths] = []
        self._file.write(_array_header(self._dtype, 0))

    def write(self, side: EncodedSide) -> None:
        self._file.write(np.ascontiguousarray(side.tokens, dtype=self._dtype).data)
        self._lengths.append(side.lengths)

    def close(self) -> None:
        """Fill in the sizes. Until then the file says that it is empty."""
        lengths = np.concatenate([np.zeros(1, dtype=np.int64), *self._lengths])
        offsets = np.cumsum(lengths)
        self._file.seek(0)
        self._file.write(_array_header(self._dtype, int(offsets[-1])))
        self._file.close()
        with open(self._offsets_path, "wb") as file:
            np.save(file, offsets)

    def __enter__(self) -> SentenceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


def _array_header(dtype: np.dtype[Any], count: int) -> bytes:
    """The first 128 bytes of an .npy file (format 1.0), the same length whatever the count is."""
    description = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)})
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + description.ljust(117).encode("ascii") + b"\n"


def write_text(path: Path, lines: Iterable[str | None]) -> None:
    """One line each; a line that was left out is empty, so the line count holds."""
    with open(path, "wb") as file:
        for line in lines:
            file.write((line or "").encode("utf-8") + b"\n")
