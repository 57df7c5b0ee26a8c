"""Folders that the workers of one run of pytest share: the first that needs one makes it."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

place: Path | None = None  # of this run of pytest; set by tests/conftest.py


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that ``make`` fills, in this worker or in another one; do not write to it."""
    assert place is not None, "only tests share folders"
    folder, done = place / name, place / f"{name}.done"
    with one_at_a_time(place / f"{name}.lock"):
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@contextlib.contextmanager
def one_at_a_time(file: Path) -> Iterator[None]:
    """Wait until no other process is in such a block with the same file."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
