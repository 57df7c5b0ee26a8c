"""Folders that the workers of one run of pytest share: the first that needs one makes it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

place: Path | None = None  # of this run of pytest; set by tests/conftest.py


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that ``make`` fills, in this worker or in another one; do not write to it."""
    assert place is not None, "only tests share folders"
    folder, done = place / name, place / f"{name}.done"
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
