"""One writer per folder."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from pathlib import Path
from typing import IO

from nmt.errors import OutputError
from nmt.storage.files import said_plainly

logger = logging.getLogger("nmt.storage")


class Lock:
    """Held while a folder is written. The kernel releases it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        self._file: IO[str] | None = None

    def __enter__(self) -> Lock:
        with said_plainly(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = open(self._path, "a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise OutputError(
                f"{self._path.parent} is being written by {holder}; wait, or use another folder"
            ) from None
        except OSError as error:  # some NFS
            logger.warning(
                "%s cannot be locked (%s): make sure that no other process writes there",
                self._path.parent,
                error.strerror,
            )
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
