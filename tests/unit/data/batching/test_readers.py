"""Processes that prepare batches: what comes of it is what the training process would have made, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt.data.batching.readers import Readers

ROOT = Path(__file__).resolve().parents[4]


def work(task: int) -> tuple[int, int]:
    """The task and who did it."""
    if task < 0:
        raise ValueError(f"{task} is negative")
    return task, os.getpid()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_every_task_is_done_once_asked_for(count: int) -> None:
    with Readers(work, count) as readers:
        found = []
        for task in range(20):
            readers.announce(range(task, task + max(1, readers.lookahead)))
            found.append(readers(task))
    assert [task for task, _ in found] == list(range(20))
    doers = {doer for _, doer in found}
    assert doers == {os.getpid()} if count == 0 else os.getpid() not in doers and len(doers) <= count


def test_what_was_not_announced_is_done_here_and_what_is_passed_over_is_forgotten() -> None:
    with Readers(work, 2) as readers:
        readers.announce([1, 2, 3, 4, 5, 6])
        assert readers(40) == (40, os.getpid())
        assert readers(5)[0] == 5
        assert readers(6)[0] == 6
        readers.announce([7, 8])
        assert [readers(task)[0] for task in (7, 8)] == [7, 8]
        assert readers(2) == (2, os.getpid()), "it was passed over"
        assert not readers._coming


def test_a_task_may_be_asked_for_twice() -> None:
    with Readers(work, 1) as readers:
        readers.announce([1, 2])
        assert [readers(task)[0] for task in (1, 1, 2)] == [1, 1, 2]


def test_an_error_is_that_of_the_training_process() -> None:
    with Readers(work, 2) as readers:
        readers.announce([1, -2, 3])
        assert readers(1)[0] == 1
        with pytest.raises(ValueError, match="-2 is negative"):
            readers(-2)
        assert readers(3)[0] == 3, "the reader goes on"


@pytest.mark.parametrize("count", [1, 2])
def test_a_reader_that_dies_is_done_without(count: int, caplog: pytest.LogCaptureFixture) -> None:
    with Readers(work, count) as readers:
        readers.announce(range(4))
        assert readers(0)[0] == 0
        first = readers._readers[0].worker
        os.kill(first.pid, signal.SIGKILL)
        assert first.ending() == "SIGKILL"
        for task in range(1, 20):
            readers.announce(range(task, task + 4))
            assert readers(task)[0] == task
        left = "1 continue" if count == 2 else "the training process now prepares batches itself"
        assert f"SIGKILL; {left}" in caplog.text


def test_signals_that_are_for_training_do_not_end_a_reader() -> None:
    with Readers(work, 1) as readers:
        readers.announce([1])
        doer = readers(1)[1]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            os.kill(doer, number)
        readers.announce([2])
        assert readers(2) == (2, doer)


def test_readers_end_with_the_block_also_where_nobody_asks_for_their_results() -> None:
    with Readers(bytes, 2) as readers:
        readers.announce([10_000_000, 20_000_000, 30_000_000])  # more than a pipe holds
        workers = [reader.worker for reader in readers._readers]
        began = time.monotonic()
    assert time.monotonic() - began < 4, "they were not waited for in vain"
    assert {worker.ending() for worker in workers} <= {"SIGKILL", "status 0"}  # 0: it noticed the closed pipe first


KILLED = """
import os, signal, sys
from nmt.data.batching.readers import Readers
with Readers(bytes, 3) as readers:
    readers.announce([10_000_000, 1, 2, 3])
    print(*(reader.worker.pid for reader in readers._readers), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_no_reader_outlives_a_training_process_that_is_killed() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    left = [int(number) for number in done.stdout.split()]
    assert len(left) == 3
    deadline = time.monotonic() + 20
    while left and time.monotonic() < deadline:
        left = [number for number in left if _runs(number)]
        time.sleep(0.02)
    assert not left


def _runs(number: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{number}/status").read_text().split("\n")[2]
    except OSError:
        return False
