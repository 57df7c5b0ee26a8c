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
BFLOAT16 = "bfloat16"  # numpy has no such type


def item_size(type_name: str) -> int:
    """Return the bytes of a number, by numpy's name of its type or "bfloat16"."""
    return 2 if type_name == BFLOAT16 else np.dtype(type_name).itemsize


def numbers_of(content: Numbers, type_name: str) -> Numbers:
    """View bytes as little-endian numbers of a type. bfloat16 is widened to float32, of which it is the upper half."""
    if type_name != BFLOAT16:
        return content.view(np.dtype(type_name).newbyteorder("<"))
    wide: Numbers = content.view("<u2").astype(np.uint32) << 16
    release(content)
    return wide.view(np.float32)


def release(array: Numbers) -> None:
    """Take the pages of a mapped file out of this process's memory, if an array is a view of one. Reading the array again
    maps them again, so arrays that are read one by one need the memory of one."""
    owner: Any = array
    while (base := getattr(owner, "base", None)) is not None:
        owner = base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if isinstance(owner, mmap.mmap) and hasattr(owner, "madvise"):  # not on Windows
        owner.madvise(mmap.MADV_DONTNEED)


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


def map_integers(path: Path) -> npt.NDArray[np.integer]:
    """Map a one-dimensional array of integers."""
    array = map_array(path)
    if array.ndim != 1 or array.dtype.kind not in "iu":  # numpy.issubdtype would accept timedelta64
        raise DataError(f"{path} is damaged: it should hold one row of integers")
    return array
