"""The CPU, memory and GPU use of a training process, from the files of Linux and ``nvidia-smi``."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from nmt.errors import NMTError
from nmt.storage.lock import process_lives
from nmt.storage.reading import read_mapping
from nmt.storage.run_status import NAME

_BETWEEN_QUESTIONS = 5.0  # seconds between two calls of nvidia-smi, and its time limit
_QUESTION = ("nvidia-smi", "--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")


def process_of(folder: Path) -> tuple[str | None, int]:
    """Return state and process id of the training in a run folder.

    State: "alive"; "gone": it was killed before it recorded its end; None: it has ended, or runs on another machine.
    """
    with contextlib.suppress(NMTError, OSError):
        status = read_mapping(folder / NAME)
        number = status.get("process")
        if status.get("reason") == "running" and status.get("host") == socket.gethostname() and isinstance(number, int):
            return ("alive" if process_lives(number) else "gone"), number
    return None, 0


def usage(process: int) -> dict[str, Any]:
    """Return the use of a process and its children: seconds of CPU until ``time``, resident memory in MB; for each GPU its
    number, use in % and memory in MB."""
    facts = [fact for fact in map(_facts, [process, *_children(process)]) if fact is not None]
    now, seconds, memory = time.monotonic(), sum(seconds for seconds, _ in facts), sum(memory for _, memory in facts)
    gpus = _gpus(int(now / _BETWEEN_QUESTIONS))
    return {"process": process, "time": now, "seconds": seconds, "memory": memory or None, "gpus": gpus}


@functools.lru_cache(maxsize=1)
def _gpus(_: int) -> list[tuple[int, int, float]]:
    """Return the use of each GPU. The argument, the number of an interval, allows one question in it."""
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):  # such as no NVIDIA GPU
        done = subprocess.run(_QUESTION, capture_output=True, text=True, timeout=_BETWEEN_QUESTIONS, check=True)
        rows = [line.split(",") for line in done.stdout.splitlines()]
        return [(int(number), int(busy), float(used) * 2**20 / 1e6) for number, busy, used in rows]
    return []


def _children(process: int) -> list[int]:
    """Return the child processes, such as readers, but not this one."""
    children = list[int]()
    with contextlib.suppress(OSError):
        for file in Path(f"/proc/{process}/task").glob("*/children"):
            children += map(int, file.read_text().split())
    return [child for child in children if child != os.getpid()]


def _facts(process: int) -> tuple[float, float] | None:
    """Return the seconds of CPU of a process and its own resident memory in MB. None: unknown."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        resident, shared = Path(f"/proc/{process}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return None
    memory = (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), memory
