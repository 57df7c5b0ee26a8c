"""Load the C library that setup.py builds in this folder."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.errors import UsageError

logger = logging.getLogger("nmt.native")

FOLDER = Path(__file__).parent
SWITCH = "NMT_NATIVE"  # "off", or the newest of PROCESSORS whose instructions may be used
PROCESSORS = ("portable", "avx2", "avx_vnni", "avx512", "amx")  # as native.h numbers them

_POINTER, _COUNT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "choose_processor": (_COUNT, [_COUNT]),
    "packed_bytes": (_COUNT, [_COUNT] * 3),
    "pack": (None, [_POINTER, *[_COUNT] * 3, *[_POINTER] * 3]),
    "select_outputs": (None, [*[_POINTER] * 3, _COUNT, *[_POINTER] * 4]),
    "unpack_row": (None, [_POINTER, _COUNT, _POINTER]),
    "multiply": (None, [_POINTER, _POINTER, _COUNT, _COUNT, _POINTER, _COUNT, _COUNT]),
    "begin_decoding": (_POINTER, [_POINTER, _COUNT, _COUNT, *[_POINTER] * 4, _COUNT]),
    "decoding_step": (_COUNT, [_POINTER, _POINTER, _POINTER, _COUNT]),
    "decoding_best": (None, [_POINTER, _POINTER, _COUNT, _POINTER, _COUNT, *[_POINTER] * 4]),
    "decoding_follow": (None, [_POINTER, _POINTER, _POINTER, _COUNT]),
    "decoding_scores": (_POINTER, [_POINTER]),
    "decoding_normaliser": (_POINTER, [_POINTER]),
    "end_decoding": (None, [_POINTER]),
    "summarise": (None, [_POINTER, _COUNT, _COUNT, _POINTER, _POINTER]),
    "drop_merges": (None, [*[_POINTER] * 7, _COUNT, _COUNT, ctypes.c_uint64, _COUNT]),
    "best_continuations": (None, [*[_POINTER] * 4, *[_COUNT] * 4, _POINTER, _COUNT, *[_POINTER] * 3]),
}


@functools.cache
def _load() -> tuple[ctypes.CDLL, str] | None:
    """Return the library with its functions declared, and the processor whose instructions it uses."""
    limit = os.environ.get(SWITCH, PROCESSORS[-1])
    if limit == "off":
        return None
    if limit not in PROCESSORS:
        raise UsageError(f"{SWITCH}={limit} is unknown; choose one of off, {', '.join(PROCESSORS)}")
    path = FOLDER / "_native.so"
    if not path.exists():
        if any(FOLDER.glob("_native.*.so")):  # of a version that named the library after Python's
            logger.warning(
                "the C part of nmt is of an earlier version and is ignored; install nmt again (pip install -e .)"
            )
        return None
    try:
        loaded = ctypes.CDLL(str(path))
        loaded.built_from.restype = ctypes.c_char_p
        built_from = loaded.built_from().decode()
    except (OSError, AttributeError):  # built for another system
        return None
    if built_from != sources():
        logger.warning(f"{path.name} was built from other sources and is ignored; install nmt again (pip install -e .)")
        return None
    return _limited(loaded, limit)


def _limited(library: ctypes.CDLL, processor: str) -> tuple[ctypes.CDLL, str]:
    """Declare the functions of a library, and return the processor that it chose, at most ``processor``."""
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library, PROCESSORS[library.choose_processor(PROCESSORS.index(processor))]


def library() -> ctypes.CDLL | None:
    """Return the library; None if it was not built or is switched off."""
    loaded = _load()
    return None if loaded is None else loaded[0]


def built() -> ctypes.CDLL:
    """Return the library. The caller knows that it was built."""
    loaded = library()
    assert loaded is not None
    return loaded


def processor() -> str | None:
    """Return the processor whose instructions are used; None without the library."""
    loaded = _load()
    return None if loaded is None else loaded[1]


def forget() -> None:
    """Load the library again on the next call, after a change of the environment."""
    _load.cache_clear()


def sources() -> str:
    """Return the checksum of the C files; setup.py compiles it into the library."""
    files = sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def address(array: npt.NDArray[np.generic] | None) -> int | None:
    """Return the address of a contiguous array; None for None."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    begin: int = array.__array_interface__["data"][0]
    return begin
