"""Processes side by side: every task once, errors where they belong, nobody left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nmt.errors import DataError, OutputError
from nmt.storage.lock import claimed
from nmt.workers import WorkerEnded, mapped, possible, side_by_side

ROLLUP = Path("/proc/self/smaps_rollup")
pytestmark = pytest.mark.skipif(not possible(), reason="processes cannot be copied here")


def square(number: int) -> tuple[int, int]:
    time.sleep(random.random() / 500)
    return number * number, os.getpid()


def test_every_task_is_done_once_by_several_processes() -> None:
    done = [found for found in side_by_side(square, range(50), processes=3) if found is not None]
    assert sorted((task, result[0]) for task, result in done) == [(number, number**2) for number in range(50)]
    pids = {pid for _, (_, pid) in done}
    assert len(pids) == 3 and os.getpid() not in pids
    for pid in pids:  # they have ended with the last task
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.skipif(not ROLLUP.exists(), reason="the system does not say what a process has for itself")
def test_what_was_loaded_before_is_in_memory_once() -> None:
    weights = torch.ones(2**26)  # 256 MiB

    def read(_: int) -> tuple[float, int]:
        total = float(weights.sum())
        fields = (line.split() for line in ROLLUP.read_text().splitlines())
        return total, sum(int(field[1]) for field in fields if field[0] in ("Private_Clean:", "Private_Dirty:"))

    for _, (total, kibibytes) in filter(None, side_by_side(read, [1, 2, 3], processes=2)):
        assert total == 2**26 and kibibytes < 2**17


def test_a_single_task_is_done_here() -> None:
    assert list(side_by_side(square, [5], processes=2)) == [(5, (25, os.getpid()))]
    assert list(side_by_side(square, [], processes=2)) == []


def test_what_was_begun_is_finished_before_none_is_passed_on() -> None:
    order = [None if found is None else found[0] for found in side_by_side(square, [1, 2, 3, None, 4, None], 2)]
    assert sorted(order[:3]) == [1, 2, 3]
    assert order[3:6] == [None, 4, None]
    assert [None if found is None else found[0] for found in side_by_side(square, [1, None, 2], 1)] == [1, None, 2]


@pytest.mark.parametrize("before", [[], [1], [1, 2, 3], [1, None, 2, 3, None, 4]])
def test_nothing_is_taken_behind_a_none_before_what_came_before_it_is_told(before: list[int | None]) -> None:
    """Whoever writes the next task may be waiting for the answers."""
    told: list[int | None] = []

    def tasks() -> Iterator[int | None]:
        yield from before
        yield None
        assert sorted(number for number in told if number is not None) == [n for n in before if n is not None]
        assert told[-1] is None
        yield 9

    for found in side_by_side(square, tasks(), processes=2):
        told.append(None if found is None else found[0])
    assert told[-1] == 9


def test_no_more_is_taken_than_the_processes_need() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    found = side_by_side(square, tasks(), processes=2)
    next(found)
    assert len(taken) <= 8
    found.close()  # type: ignore[attr-defined]


def test_results_come_in_the_order_of_their_tasks_and_an_error_in_its_turn() -> None:
    assert [found for found, _ in mapped(square, range(50), 3)] == [number**2 for number in range(50)]
    found = mapped(refuse, [0, 1, 7, 3], 3)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(DataError, match="line 8 is bad"):
        next(found)


LEFT = """
from nmt.workers import WorkerProcess, do_tasks, possible
worker = WorkerProcess(do_tasks, bytes, copied=possible())
worker.send(3)
print(worker.result())
"""


def test_a_worker_that_is_not_closed_does_not_hold_up_the_end_of_its_program() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "b'\\x00\\x00\\x00'\n"


def large(size: int) -> bytes:
    return bytes(size)


def test_large_tasks_and_results_do_not_wait_for_each_other() -> None:
    tasks = [bytes(3_000_000)] * 8
    assert sum(found is not None and len(found[1]) for found in side_by_side(bytes, tasks, 2)) == 8 * 3_000_000


def refuse(number: int) -> int:
    if number == 7:
        raise DataError("line 8 is bad")
    return number


def test_an_error_is_raised_here() -> None:
    with pytest.raises(DataError, match="line 8 is bad"):
        list(side_by_side(refuse, range(20), 2))


class Odd(Exception):
    """Cannot be read back after it was written."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")


def odd(number: int) -> int:
    raise Odd(1, 2)


def test_an_error_that_cannot_travel_is_told() -> None:
    with pytest.raises(RuntimeError, match="Odd"):
        list(side_by_side(odd, range(3), 2))


def die(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_the_death_of_a_process_is_told() -> None:
    for found in (side_by_side(die, range(30), 2), mapped(die, range(30), 2)):
        with pytest.raises(WorkerEnded, match="SIGKILL"):
            list(found)


KILLED = """
import os, signal, time
from pathlib import Path
from nmt.workers import side_by_side
from nmt.storage.lock import claimed

def tasks():
    yield "one"
    yield "two"
    while not (Path("one").exists() and Path("two").exists()):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

def work(name):
    Path(name).touch()
    time.sleep(20)

with claimed(Path("out"), overwrite=False):
    list(side_by_side(work, tasks(), 2))
"""


def test_the_claim_of_a_killed_process_ends_although_its_workers_have_begun_long_tasks(tmp_path: Path) -> None:
    """The workers share its lock. The next start takes over the file of the claim, and removes it."""
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL and (tmp_path / ".out.claim").exists()
    deadline = time.monotonic() + 5
    while True:
        try:
            with claimed(tmp_path / "out", overwrite=False):
                break
        except OutputError:
            assert time.monotonic() < deadline, "a worker holds the claim"
            time.sleep(0.01)
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]
