"""Why a run stopped before its end, for its log."""

from __future__ import annotations

from nmt.devices import is_shortage
from nmt.errors import Diverged, Interrupted, NMTError, StorageError
from nmt.storage.files import STORAGE_FAULTS


def cause_of(error: BaseException) -> str:
    """One of: diverged, signal, out of memory, storage, error."""
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return "signal"
    if isinstance(error, MemoryError) or any(one is not None and is_shortage(one) for one in (error, error.__cause__)):
        return "out of memory"
    if isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno in STORAGE_FAULTS):
        return "storage"
    return "error"


def said_of(error: BaseException) -> str:
    """The sentence for the user, with the class of what is a defect."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by a second Ctrl-C, before anything was saved"
    return str(error) if isinstance(error, NMTError) else f"{type(error).__name__}: {error}"
