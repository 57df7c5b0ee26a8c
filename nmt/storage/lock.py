"""One writer per folder."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from pathlib import Path
from typing import IO, Any

from nmt.errors import OutputError
from nmt.storage.files import said_plainly

logger = logging.getLogger("nmt.storage")


def locked(file: IO[Any], written: Path) -> bool:
    """Whether no other process holds the lock of the file, which stands for ``written``."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # some NFS
        logger.warning(f"{written} cannot be locked ({error.strerror}): make sure that no other process writes there")
    return True


class Lock:
    """Held while a folder is written. The kernel releases it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        self._file: IO[str] | None = None

    def __enter__(self) -> Lock:
        with said_plainly(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = open(self._path, "a+", encoding="utf-8")
        if not locked(file, self._path.parent):
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise OutputError(f"{self._path.parent} is being written by {holder}; wait, or use another folder")
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        file.flush()
        self._file = file
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
