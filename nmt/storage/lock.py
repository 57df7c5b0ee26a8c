"""Lock folders and files for one writer, and remove the temporary files that interrupted writers left."""

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
from nmt.storage.files import MANIFEST, check_new_file, explained_os_errors, sync, this_host

logger = logging.getLogger("nmt.storage")

# Names by `nmt.storage.files.temporary`: target, process, machine; "old" marks a folder that is being replaced.
_TEMPORARY = re.compile(
    r"\.(?P<name>.+)\.(?P<process>\d+)-(?P<host>[0-9a-f]{8})\.[0-9a-f]{8}(?P<replaced>\.old)?\.tmp", re.DOTALL
)
_DOOMED = re.compile(r"\.checkpoint-\d{4,}-\d{8,}\.old\.tmp")  # a checkpoint whose deletion has begun
_DAY = 24 * 3600  # seconds


def locked(file: IO[Any], written: Path) -> bool:
    """Lock a file that represents ``written``. Returns whether no other process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # some NFS
        logger.warning(f"{written} cannot be locked ({error.strerror}): make sure that no other process writes there")
    return True


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder during the block. The kernel releases it when the process ends, even if it is killed."""
    with contextlib.ExitStack() as held:
        with explained_os_errors(folder / ".lock"):
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


@contextlib.contextmanager
def claimed(path: Path, *, overwrite: bool, option: str = "--output") -> Iterator[None]:
    """Claim a file during the block, so that no other process writes it; refuse a path that cannot be written.

    Of two processes that begin at once, one is refused. The kernel ends the claim of a process that dies.
    """
    check_new_file(path, overwrite=overwrite, option=option)
    real = Path(os.path.realpath(path))
    name = real.with_name(f".{real.name}.claim")
    file = _claim(name, path, option)
    try:
        check_new_file(path, overwrite=overwrite, option=option)  # again: another process may just have written it
        yield
    finally:
        name.unlink(missing_ok=True)  # before others can lock it
        file.close()


def _claim(name: Path, path: Path, option: str) -> IO[bytes]:
    """Open and lock the file that represents a claim."""
    while True:
        with explained_os_errors(path):
            file = open(name, "ab")  # noqa: SIM115 - its lock ends when it is closed
        if not locked(file, path):
            file.close()
            raise OutputError(f"another process is writing {path}; wait until it is done, or choose another {option}")
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(name), os.fstat(file.fileno())):
                return file
        file.close()  # the process before deleted it after it was opened here


def remove_leftovers(folder: Path, of: str | None = None) -> list[str]:
    """Delete temporary files of interrupted writers in a folder. Returns their names.

    ``of``: delete only those for this name. None: all of them; the caller holds the lock of the folder.

    A file is deleted if its name has the form that writers use, and if its process has ended or has the number of this
    process (a restarted container reuses numbers). Files of other machines are deleted after a day. Other hidden files stay.
    A folder whose replacement was interrupted gets its name back.
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
    """Delete the temporary files for one path that is about to be written."""
    path = Path(os.path.realpath(path))
    for name in remove_leftovers(path.parent, path.name):
        logger.info("removed %s, which an interrupted process left", path.with_name(name))


def _put_back(old: Path, path: Path) -> bool:
    """Undo an interrupted replacement. Returns whether there was one."""
    if os.path.lexists(path) or not (old / MANIFEST).is_file():
        return False
    with explained_os_errors(path):
        os.rename(old, path)
        sync(path.parent)
    logger.warning("restored the previous %s: its replacement was interrupted", path)
    return True


def _changed_of_late(path: Path) -> bool:
    """Whether a file, or anything in a folder, changed within a day."""
    try:
        changed = max(part.lstat().st_mtime for part in (path, *path.rglob("*")))
    except OSError:  # it was renamed meanwhile
        return True
    return time.time() - changed < _DAY


def _writer_lives(process: int) -> bool:
    """Whether another process of this machine has the number."""
    return process != os.getpid() and process_lives(process)


def process_lives(process: int) -> bool:
    """Whether a process of this machine is running. A zombie does not count."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        pass
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True
