"""One writer per folder, and what interrupted writers left: the temporary files and folders of ``nmt.storage.files``."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from nmt.errors import OutputError
from nmt.storage.files import MANIFEST, said_plainly, sync, this_host

logger = logging.getLogger("nmt.storage")

# As `nmt.storage.files.temporary` names them: of what, by which process of which machine; "old": what it replaced.
_TEMPORARY = re.compile(
    r"\.(?P<name>.+)\.(?P<process>\d+)-(?P<host>[0-9a-f]{8})\.[0-9a-f]{8}(?P<replaced>\.old)?\.tmp", re.DOTALL
)
_DOOMED = re.compile(r"\.checkpoint-\d{4,}-\d{8,}\.old\.tmp")  # a checkpoint whose deletion had begun
_DAY = 24 * 3600  # seconds


def locked(file: IO[Any], written: Path) -> bool:
    """Whether no other process holds the lock of the file, which stands for ``written``."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # some NFS
        logger.warning(f"{written} cannot be locked ({error.strerror}): make sure that no other process writes there")
    return True


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder while it is written. The kernel releases it when the process ends, however it ends."""
    with contextlib.ExitStack() as held:
        with said_plainly(folder / ".lock"):
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context(open(folder / ".lock", "a+", encoding="utf-8"))
        file.seek(0)
        if not locked(file, folder):
            holder = file.read().strip() or "another process"
            raise OutputError(f"{folder} is being written by {holder}; wait, or use another folder")
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        file.flush()
        yield


def remove_leftovers(folder: Path, of: str | None = None) -> list[str]:
    """Delete what interrupted writers left in a folder, all of it (the caller holds its lock) or what belongs to the name
    ``of``. Returns the names.

    Only what bears a name that writers here give, and the number of a process that has ended (or of this one: in a
    container a restarted program often gets its old number again); what another machine left, only after a day. The
    user's own hidden files are not touched. A folder that was to be replaced and was not gets its name back.
    """
    names = []
    for path in sorted(folder.glob(".*.tmp")):
        temporary = _TEMPORARY.fullmatch(path.name)
        if of is not None and (temporary is None or temporary["name"] != of):
            continue
        if temporary is None:
            kept = _DOOMED.fullmatch(path.name) is None
        elif temporary["replaced"]:
            at_work = temporary["host"] == this_host() and _writer_lives(int(temporary["process"]))
            kept = at_work or _put_back(path, path.with_name(temporary["name"]))
        elif temporary["host"] == this_host():
            kept = _writer_lives(int(temporary["process"]))
        else:
            kept = _changed_of_late(path)
        if not kept:
            with contextlib.suppress(OSError):  # of another user
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
            if not os.path.lexists(path):
                names.append(path.name)
    return names


def remove_leftovers_of(path: Path) -> None:
    """The same for one file or folder that is about to be written, beside which may be anything."""
    path = Path(os.path.realpath(path))
    for name in remove_leftovers(path.parent, path.name):
        logger.info("removed %s, which an interrupted process left", path.with_name(name))


def _put_back(old: Path, path: Path) -> bool:
    """Whether a folder had to get its name back: whoever replaced it ended before the new one stood."""
    if os.path.lexists(path) or not (old / MANIFEST).is_file():
        return False
    with said_plainly(path):
        os.rename(old, path)
        sync(path.parent)
    logger.warning("%s is the old one: an interrupted process did not come to replace it", path)
    return True


def _changed_of_late(path: Path) -> bool:
    """Whether a file, or anything in a folder, changed within a day."""
    try:
        changed = max(part.lstat().st_mtime for part in (path, *path.rglob("*")))
    except OSError:  # it has just taken its name
        return True
    return time.time() - changed < _DAY


def _writer_lives(process: int) -> bool:
    """Whether another process of this machine bears the number."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        pass
    return True
