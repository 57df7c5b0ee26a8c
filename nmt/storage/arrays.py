"""Map arrays of ``numpy.save`` into memory without running anything in them."""

from __future__ import annotations

import mmap
import struct
import tokenize
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.errors import DataError, MissingInputError

# numpy raises these for a damaged file: it parses the header with Python's grammar.
FAULTS = (
    *(ValueError, OverflowError, EOFError, struct.error, zipfile.BadZipFile, NotImplementedError, OSError),
    *(SyntaxError, TypeError, RecursionError, MemoryError, tokenize.TokenError),
)

Numbers = npt.NDArray[Any]
LEAST_WEIGHT, MOST_WEIGHT = 1e-20, 1_000_000  # of a pair or token, besides 0; float32 can hold sums and gradients
BFLOAT16 = "bfloat16"  # numpy has no such type
HALVES = np.dtype("V2")  # of unwidened bfloat16: bytes that numpy refuses to compute with


def item_size(type_name: str) -> int:
    """Return the bytes of a number, by numpy's name of its type or "bfloat16"."""
    return 2 if type_name == BFLOAT16 else np.dtype(type_name).itemsize


def numbers_of(content: Numbers, type_name: str) -> Numbers:
    """View bytes as little-endian numbers of a type; bfloat16 as ``HALVES``, which ``widened`` converts."""
    return content.view(HALVES if type_name == BFLOAT16 else np.dtype(type_name).newbyteorder("<"))


def widened(array: Numbers) -> Numbers:
    """Convert bfloat16 to float32, of which it is the upper half. Other arrays are returned unchanged."""
    if array.dtype != HALVES:
        return array
    wide: Numbers = np.left_shift(array.view("<u2"), 16, dtype=np.uint32)
    release(array)
    return wide.view(np.float32)


def release(array: Numbers) -> None:
    """Take the pages of a mapped file out of this process's memory, if an array is a view of one. Reading the array again
    maps them again, so arrays that are read one by one need the memory of one."""
    owner = _owner(array)
    if isinstance(owner, mmap.mmap) and hasattr(owner, "madvise"):  # not on Windows
        owner.madvise(mmap.MADV_DONTNEED)


def is_mapped(array: Numbers) -> bool:
    """Whether an array is a view of a mapped file."""
    return isinstance(_owner(array), mmap.mmap)


def _owner(array: Numbers) -> Any:
    owner: Any = array
    while (base := getattr(owner, "base", None)) is not None:
        owner = base
    return owner.obj if isinstance(owner, memoryview) else owner


def map_array(path: Path) -> npt.NDArray[Any]:
    """Map an array. The result is a plain view, because slices of ``numpy.memmap`` cost microseconds each."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except PermissionError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
    except FAULTS as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path} is damaged: it should hold one array")
    return array.view(np.ndarray)


def map_weights(path: Path) -> npt.NDArray[np.floating[Any]]:
    """Map a one-dimensional array of weights."""
    array = map_array(path)
    if array.ndim != 1 or array.dtype.kind != "f" or not bool(((array >= 0) & (array <= MOST_WEIGHT)).all()):
        raise DataError(f"{path} is damaged: it should hold one row of weights from 0 to {MOST_WEIGHT:,}")
    return array


def map_integers(path: Path) -> npt.NDArray[np.integer]:
    """Map a one-dimensional array of integers."""
    array = map_array(path)
    if array.ndim != 1 or array.dtype.kind not in "iu":  # numpy.issubdtype would accept timedelta64
        raise DataError(f"{path} is damaged: it should hold one row of integers")
    return array
