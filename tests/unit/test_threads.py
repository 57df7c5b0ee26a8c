"""The number of threads, and the cores that a process may use."""

from __future__ import annotations

import pytest
import torch

from nmt import threads
from nmt.threads import (
    SPIN_COUNT,
    WAIT_VARIABLES,
    count_threads,
    limit_spinning,
    processor_name,
    set_threads,
    usable_cores,
)


def test_threads_are_those_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    set_threads(3)
    set_threads(None)
    assert asked == [3], "without a wish the environment's number stays"


@pytest.mark.parametrize(("cores", "torchs", "expected"), [(2, 64, 2), (64, 32, 32)])
def test_without_a_wish_there_is_a_thread_for_each_core_that_may_be_used(cores, torchs, expected, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: torchs)
    monkeypatch.setattr(threads, "usable_cores", lambda: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    set_threads(None)
    assert asked == [expected]


def test_before_torch_is_imported_threads_are_as_wished_or_as_the_environment_says(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert (count_threads(3), count_threads(None)) == (3, 5)


@pytest.mark.parametrize("variable", WAIT_VARIABLES)
def test_a_wait_variable_of_the_user_wins(variable: str) -> None:
    environment = {variable: "1"}
    limit_spinning(environment)
    assert environment == {variable: "1"}


def test_without_a_wait_variable_idle_threads_sleep_early() -> None:
    environment = {"OMP_NUM_THREADS": "2"}
    limit_spinning(environment)
    assert environment == {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": str(SPIN_COUNT)}


@pytest.mark.parametrize(
    ("siblings", "expected"), [(["0,2", "1,3", "0,2", "1,3"], 2), (["0", "1", "2", "3"], 4), ([], 4)]
)
def test_a_core_that_looks_like_two_gets_one_thread(siblings, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda process: set(range(4)), raising=False)
    monkeypatch.setattr(threads, "_SHARES_OF_TIME", [])
    monkeypatch.setattr(threads, "_TOPOLOGY", tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for number, text in enumerate(siblings):
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(f"{text}\n")
    assert count_threads(None) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (None, 8),
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("9900000 100000", 8),
    ],
)
def test_a_container_has_as_many_cores_as_its_share_is_worth(share, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(threads, "_SHARES_OF_TIME", [[tmp_path / "cpu.max"], [tmp_path / "quota", tmp_path / "period"]])
    if share is not None:
        (tmp_path / "cpu.max").write_text(f"{share}\n")
    assert usable_cores() == expected
    if share is not None:
        (tmp_path / "cpu.max").unlink()
        for name, figure in zip(("quota", "period"), share.replace("max", "-1").split()):
            (tmp_path / name).write_text(f"{figure}\n")
        assert usable_cores() == expected


def test_the_processor_has_the_name_that_the_system_gives_it(monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9\n\nprocessor\t: 1\n")
    monkeypatch.setattr(threads, "_PROCESSORS", tmp_path / "cpuinfo")
    assert processor_name() == "AMD EPYC 9"
    monkeypatch.setattr(threads, "_PROCESSORS", tmp_path / "none")
    assert processor_name() == (threads.platform.processor() or threads.platform.machine())
