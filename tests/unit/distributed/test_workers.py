"""Processes side by side: every task once, errors where they belong, nobody left behind."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nmt.distributed.workers import one_by_one, possible, side_by_side
from nmt.errors import DataError, DeviceError

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
    assert [None if found is None else found[0] for found in one_by_one(square, [1, None, 2])] == [1, None, 2]


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
    with pytest.raises(DeviceError, match=r"has ended \(SIGKILL\).*--max-tokens"):
        list(side_by_side(die, range(30), 2))
