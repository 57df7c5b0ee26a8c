"""Ragged arrays on disk: the numbers of many sentences in one ``.npy`` file, and in a second one where each begins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nmt.errors import DataError

Ids = npt.NDArray[np.integer]  # in as many bytes as a corpus has them
Lengths = npt.NDArray[np.int64]


class Rows(Protocol):
    """One row of integers for each sentence."""

    @property
    def lengths(self) -> Lengths: ...

    def __getitem__(self, index: int) -> Ids: ...


class RaggedArray:
    """Two stored arrays, mapped into memory and checked once, here; each row has at least ``least`` numbers.

    Files are replaced, never rewritten in place, so a mapped array stays what it was.
    """

    def __init__(self, values: Path, offsets: Path, least: int = 0) -> None:
        self.values, self.offsets = _mapped(values), _mapped(offsets)
        whole = len(self.offsets) > 0 and self.offsets[0] == 0 and self.offsets[-1] == len(self.values)
        if not whole or bool(np.any(np.diff(self.offsets) < least)):
            raise DataError(
                f"{offsets} is damaged: its offsets do not cut the {len(self.values)} numbers beside it into sentences"
            )

    @cached_property
    def lengths(self) -> Lengths:
        return np.diff(self.offsets).astype(np.int64)

    def __getitem__(self, index: int) -> Ids:
        return self.values[self.offsets[index] : self.offsets[index + 1]]


class ChainedRows:
    """The rows of several parts, one part after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part.lengths) for part in parts)])

    @cached_property
    def lengths(self) -> Lengths:
        return np.concatenate([part.lengths for part in self._parts])

    def __getitem__(self, index: int) -> Ids:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[part][index - int(self._starts[part])]


class RaggedWriter:
    """Writes the two arrays, row by row, while their size is still unknown."""

    def __init__(self, values: Path, offsets: Path, dtype: type[np.unsignedinteger]) -> None:
        self._file = open(values, "wb")  # noqa: SIM115 - closed by `__exit__`
        self._offsets = offsets
        self._dtype = np.dtype(dtype)
        self._lengths: list[Lengths] = [np.zeros(1, dtype=np.int64)]
        self._file.write(_header(self._dtype, 0))

    def append(self, values: Ids, lengths: Lengths) -> None:
        """The numbers of some rows one after the other, and how many each has."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._lengths.append(lengths)

    def __enter__(self) -> RaggedWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Fill in the sizes. Until then, and after an error, the file says that it is empty."""
        with self._file:
            if kind is None:
                offsets = np.cumsum(np.concatenate(self._lengths))
                self._file.seek(0)
                self._file.write(_header(self._dtype, int(offsets[-1])))
                with open(self._offsets, "wb") as file:
                    np.save(file, offsets)


def _header(dtype: np.dtype[Any], count: int) -> bytes:
    """The first 128 bytes of an .npy file (format 1.0), the same length whatever the count is."""
    description = repr({"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + description.ljust(117).encode("ascii") + b"\n"


def _mapped(path: Path) -> Ids:
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, TypeError, SyntaxError, OverflowError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{path} is damaged: it should hold one row of integers")
    return array.view(np.ndarray)  # slices of a memmap object cost microseconds each
