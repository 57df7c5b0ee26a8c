"""Arrays as ``numpy.save`` writes them, mapped into memory. Nothing of them is run."""

from __future__ import annotations

import struct
import tokenize
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.errors import DataError, MissingInputError

# Of a damaged file: numpy reads the header as Python's grammar has it.
FAULTS = (
    *(ValueError, OverflowError, EOFError, struct.error, zipfile.BadZipFile, NotImplementedError, OSError),
    *(SyntaxError, TypeError, RecursionError, MemoryError, tokenize.TokenError),
)


def map_array(path: Path) -> npt.NDArray[Any]:
    """Whatever numbers it holds. It is a plain view: slices of numpy's own class cost microseconds each."""
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
    """One row of them."""
    array = map_array(path)
    if array.ndim != 1 or array.dtype.kind not in "iu":  # by numpy's own order of kinds, spans of time are integers too
        raise DataError(f"{path} is damaged: it should hold one row of integers")
    return array
