"""The library that setup.py builds beside this file."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

from torch import Tensor

SWITCH = "NMT_NATIVE"  # off: torch alone computes; a processor of PROCESSORS: products are made for that at most
PROCESSORS = ("portable", "avx2", "avx_vnni", "avx512", "amx")  # as native.h numbers them

_POINTER, _COUNT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "attend": (
        None,
        [_POINTER, _COUNT, *[_POINTER] * 7, _COUNT, _POINTER, _COUNT, _POINTER, *[_COUNT] * 5, _FLOAT],
    ),
    "choose_processor": (_COUNT, [_COUNT]),
    "packed_bytes": (_COUNT, [_COUNT] * 3),
    "pack": (None, [_POINTER, *[_COUNT] * 3, *[_POINTER] * 3]),
    "unpack": (None, [_POINTER] * 2),
    "select_outputs": (None, [*[_POINTER] * 3, _COUNT, *[_POINTER] * 4]),
    "multiply": (None, [_POINTER, _POINTER, _COUNT, _COUNT, _POINTER, _COUNT, _COUNT]),
    "multiply_own": (None, [_POINTER, _COUNT, _COUNT, _POINTER, _COUNT, _POINTER]),
    "decoder_layer": (
        None,
        [
            *[_POINTER, _POINTER, _COUNT, _COUNT, *[_POINTER] * 4, _COUNT, _POINTER, _COUNT],
            *[*[_POINTER] * 3, _COUNT, _POINTER],
        ],
    ),
    "encoder_layer": (None, [_POINTER, _POINTER, _COUNT, _POINTER]),
    "summarise": (None, [_POINTER, _COUNT, _COUNT, _POINTER, _POINTER]),
    "best_continuations": (None, [*[_POINTER] * 4, *[_COUNT] * 4, _POINTER, _COUNT, *[_POINTER] * 3]),
}


class Strides(ctypes.Structure):
    """As native.h has them: numbers from one sentence, step, slot and head to the next."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("sentence", "step", "slot", "head"))


@functools.cache
def library() -> ctypes.CDLL | None:
    """None where it was not built, or is switched off."""
    wanted = os.environ.get(SWITCH, "")
    if wanted == "off":
        return None
    for path in sorted(Path(__file__).parent.glob("_native*.so")):
        try:
            found = ctypes.CDLL(str(path))
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(found, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError):  # of another system or Python, or built from other sources
            continue
        found.choose_processor(_most())
        return found
    return None


def processor() -> str | None:
    """What products are made for here."""
    found = library()
    return None if found is None else PROCESSORS[found.choose_processor(_most())]


def _most() -> int:
    wanted = os.environ.get(SWITCH, "")
    return PROCESSORS.index(wanted) if wanted in PROCESSORS else len(PROCESSORS) - 1


def at(tensor: Tensor | None) -> int | None:
    """Where the numbers of a tensor begin."""
    return None if tensor is None else tensor.data_ptr()
