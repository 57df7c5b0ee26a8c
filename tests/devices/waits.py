"""Notes of where the CPU waits for a device, for the devices of tests."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor

# Operations whose result has a shape that depends on numbers, or is a number for Python.
_READING = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "equal",
    "is_nonzero",
}


@dataclass(frozen=True)
class Wait:
    """A place in nmt where the CPU waited for the device."""

    operation: str
    file: str  # below nmt/
    line: int
    function: str


_waits: list[Wait] = []
_root: list[str] = []


@contextlib.contextmanager
def noted() -> Iterator[list[Wait]]:
    """Yield the waits of a ``with`` block, empty at first."""
    _waits.clear()
    yield _waits


def waits_for(name: str, args: Any) -> bool:
    """Whether the CPU waits for the result of an operation on tensors of a device."""
    return name in _READING or _has_mask(name, args)


def _has_mask(name: str, args: Any) -> bool:
    """Whether an operation has an index of truth values, which the CPU must count."""
    if name not in ("index", "index_put", "index_put_"):
        return False
    return any(isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) for part in args[1])


def note(operation: str) -> None:
    """Note a wait if nmt asked for it, directly or through a library."""
    if not _root:  # nmt imports torch, and torch may import this
        import nmt

        _root.append(os.path.dirname(nmt.__file__) + os.sep)
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename.removeprefix(_root[0])
        if file != frame.f_code.co_filename and not file.startswith("devices"):
            _waits.append(Wait(operation, file, frame.f_lineno, frame.f_code.co_name))
            return
        frame = frame.f_back
