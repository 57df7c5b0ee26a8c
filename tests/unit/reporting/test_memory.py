"""The memory that a run is said to take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt.reporting import resources as memory
from nmt.reporting.resources import peak_memory

CPU = torch.device("cpu")


PROGRAM = """
import sys, torch, nmt.reporting.resources as memory
from pathlib import Path
memory._STATUS = Path(sys.argv[1])
figures = [memory.peak_memory(torch.device("cpu"))]
held = torch.ones(100_000_000)
figures.append(memory.peak_memory(torch.device("cpu")))
del held
figures.append(memory.peak_memory(torch.device("cpu")))
print(*figures)
"""


@pytest.mark.slow
@pytest.mark.parametrize("status", ["/proc/self/status", "/nowhere"])
def test_the_peak_contains_what_was_held_and_does_not_fall(status: str) -> None:
    """In a process of its own: one that held more before would notice nothing.

    Without the kernel's file the figure may contain what the process was started from.
    """
    result = subprocess.run([sys.executable, "-c", PROGRAM, status], capture_output=True, text=True, check=True)
    before, after, at_last = map(int, result.stdout.split())
    rounding = 2**20  # of the kernel's counters
    assert after >= 400_000_000 and at_last >= after - rounding
    assert status == "/nowhere" or after >= before + 300_000_000


FORGETS = """
import torch, nmt.reporting.resources as memory
figures = [memory.resident_memory()]
held = torch.ones(100_000_000)
del held
memory.give_back(torch.device("cpu"))
figures += [memory.peak_memory(torch.device("cpu")), memory.resident_memory()]
held = torch.ones(50_000_000)
print(*figures, memory.peak_memory(torch.device("cpu")), memory.resident_memory())
"""


@pytest.mark.slow
@pytest.mark.skipif(not memory._CLEAR.exists(), reason="the system cannot let a peak start again")
@pytest.mark.parametrize("kept", ["0", str(2**33)])
def test_a_peak_starts_again_after_giving_back(kept: str) -> None:
    """Also where the allocator was told to keep what is free, as the commands tell it."""
    settings = f"glibc.malloc.mmap_threshold={2**32 - 1}:glibc.malloc.trim_threshold={kept}"
    environment = {**os.environ, "GLIBC_TUNABLES": settings}
    command = [sys.executable, "-c", FORGETS]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    start, before, resident, after, resident_then = map(int, result.stdout.split())
    rounding = 2**20  # of the kernel's counters
    assert before < start + 150_000_000 and resident <= before + rounding
    assert after - before > 150_000_000 and resident_then - resident > 150_000_000


def test_on_a_gpu_it_is_what_tensors_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1000 + device.index)
    assert peak_memory(torch.device("cuda", 1)) == 1001


def test_what_is_left_is_the_least_that_system_and_container_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {name: tmp_path / name for name in ("meminfo", "max", "current", "none")}
    files["meminfo"].write_text("MemTotal:       900 kB\nMemAvailable:    500 kB\n")
    files["max"].write_text("max\n")
    files["current"].write_text("100000\n")
    monkeypatch.setattr(memory, "_MEMINFO", files["meminfo"])
    monkeypatch.setattr(memory, "_CGROUPS", [(files["max"], files["current"]), (files["none"], files["none"])])
    assert memory.available_memory() == 512_000
    files["max"].write_text("300000\n")
    assert memory.available_memory() == 200_000
    files["max"].write_text("90000\n")
    assert memory.available_memory() == 0


def test_without_the_kernels_file_it_is_half_of_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(memory, "_CGROUPS", [])
    monkeypatch.setattr(memory.os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert memory.available_memory() == 2_048_000

    def unknown(_: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(memory.os, "sysconf", unknown)
    assert memory.available_memory() is None
