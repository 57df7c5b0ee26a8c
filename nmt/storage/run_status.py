"""``status.json`` in a run folder: how the last ``nmt-train`` there ended.

Under torchrun all exit statuses but 0 become 1, so batch scripts read this file. A process that torchrun starts again reads
whether another attempt can help.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt.errors import (
    AlreadyReported,
    DataError,
    DeviceError,
    Diverged,
    Interrupted,
    MissingInputError,
    NMTError,
    OutputError,
    RankLost,
    StorageError,
    UsageError,
)
from nmt.storage.files import STORAGE_FAULTS, write_json
from nmt.storage.lock import one_writer
from nmt.storage.reading import read_mapping

NAME = "status.json"
_REASONS: Mapping[type[NMTError], str] = {
    UsageError: "usage",
    DataError: "data",
    MissingInputError: "input",
    DeviceError: "device",
    OutputError: "output",
    StorageError: "disk",
    Diverged: "diverged",
    RankLost: "rank lost",
}
_HOPELESS = ("usage", "data", "diverged")  # a second attempt ends in the same way


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Record how the run in the block ends, unless another rank does. Raise at once if a restart cannot help."""
    refuse_hopeless_restart(folder)
    try:
        yield
    except AlreadyReported:
        raise
    except BaseException as error:
        record_failure(folder, error)
        raise
    if os.environ.get("RANK", "0") == "0":
        _write(folder, "finished", 0, "")


def record_start(folder: Path) -> None:
    """Record that the run has begun: a killed process leaves "running". The caller holds the lock of the folder."""
    _write(folder, "running", None, "")


def record_failure(folder: Path, error: BaseException) -> None:
    """Record an error. Only ranks create the folder for it; a single process has its exit status."""
    if not folder.is_dir() and not has_ranks():
        return
    if isinstance(error, OutputError):
        try:
            with one_writer(folder):
                pass
        except NMTError:  # the status is that of the run that writes there
            return
    reason, status = described(error)
    _write(folder, reason, status, str(error))


def described(error: BaseException) -> tuple[str, int]:
    """Return the reason and the exit status of a failure."""
    if isinstance(error, Interrupted):
        return "interrupted" if error.exit_status == 130 else "preempted", error.exit_status
    if isinstance(error, NMTError):
        reason = next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), "failed")
        return reason, error.exit_status
    if isinstance(error, KeyboardInterrupt):
        status = int(getattr(error, "exit_status", 130))  # a signal of a batch system has its own
        return "interrupted" if status == 130 else "preempted", status
    if isinstance(error, OSError) and error.errno in STORAGE_FAULTS:
        return "disk", StorageError.exit_status
    return "defect", 1


def refuse_hopeless_restart(folder: Path) -> None:
    """If torchrun started this process again after a failure that a restart cannot fix, end as the first attempt did."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0:
        return
    try:
        stored = read_mapping(folder / NAME)
    except NMTError:
        return
    reason, message, status = (stored.get(name) for name in ("reason", "message", "exit_status"))
    same_start = stored.get("torchrun") == os.environ.get("TORCHELASTIC_RUN_ID")
    if reason in _HOPELESS and same_start and isinstance(message, str) and isinstance(status, int):
        raise AlreadyReported(message, status)


def has_ranks() -> bool:
    """Whether several processes run this command together."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ


def _write(folder: Path, reason: str, exit_status: int | None, message: str) -> None:
    status: dict[str, Any] = {"reason": reason, "exit_status": exit_status, "message": " ".join(message.split())}
    status |= {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "host": socket.gethostname(), "process": os.getpid()}
    status |= {"torchrun": os.environ.get("TORCHELASTIC_RUN_ID")}
    with contextlib.suppress(OSError, NMTError):  # the command tells the same on its own
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / NAME, status)
