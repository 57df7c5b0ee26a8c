"""The CPU, memory and GPU use of a training process, from the files of Linux and ``nvidia-smi``."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from nmt.errors import NMTError
from nmt.storage.lock import process_lives
from nmt.storage.reading import read_mapping
from nmt.storage.run_status import NAME

_SHORTEST = 1.0  # seconds over which CPU use is a mean
_BETWEEN_QUESTIONS = 5.0  # seconds between two calls of nvidia-smi, and its time limit
_QUESTION = ("nvidia-smi", "--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")


def process_of(folder: Path) -> tuple[str | None, int]:
    """Return state and number of the process that trains in a run folder.

    State: alive, gone (it ended without a word) or None: it has ended, or belongs to another machine.
    """
    with contextlib.suppress(NMTError, OSError):
        status = read_mapping(folder / NAME)
        number = status.get("process")
        if status.get("reason") == "running" and status.get("host") == socket.gethostname() and isinstance(number, int):
            return ("alive" if process_lives(number) else "gone"), number
    return None, 0


class Usage:
    """Measure between two questions of a page. Without a page, nothing is measured."""

    def __init__(self) -> None:
        self._process, self._seconds, self._time = 0, 0.0, 0.0  # when CPU use was last computed
        self._processor: float | None = None
        self._gpus: list[tuple[int, int, float]] = []
        self._last_question = -_BETWEEN_QUESTIONS if shutil.which(_QUESTION[0]) else float("inf")

    def of(self, process: int) -> dict[str, Any]:
        """Return CPU use in cores, resident memory in MB, and number, use in % and memory in MB of each GPU."""
        facts = [fact for fact in map(_facts, [process, *_children(process)]) if fact is not None]
        seconds, now = sum(seconds for seconds, _ in facts), time.monotonic()
        if process != self._process:
            self._processor = None
        elif now - self._time >= _SHORTEST:
            self._processor = max(0.0, (seconds - self._seconds) / (now - self._time))
        if process != self._process or now - self._time >= _SHORTEST:
            self._process, self._seconds, self._time = process, seconds, now
        memory = sum(memory for _, memory in facts) or None
        return {"processor": self._processor, "memory": memory, "gpus": self._ask_gpus(now)}

    def _ask_gpus(self, now: float) -> list[tuple[int, int, float]]:
        if now - self._last_question >= _BETWEEN_QUESTIONS:
            self._last_question, self._gpus = now, []
            with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
                done = subprocess.run(_QUESTION, capture_output=True, text=True, timeout=_BETWEEN_QUESTIONS, check=True)
                rows = [line.split(",") for line in done.stdout.splitlines()]
                self._gpus = [(int(number), int(busy), float(used) * 2**20 / 1e6) for number, busy, used in rows]
        return self._gpus


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
