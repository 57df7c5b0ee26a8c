"""Memory that a process keeps, of freed tensors and of kernels: that it does so, and that what a user decided stays."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys

import pytest
import torch

from nmt.allocator import FEW_KERNELS, KERNELS, VARIABLES, keep_freed_memory, user_has_decided

# Pages that the system hands out for a block of 64 MiB that is taken, written and freed ten times.
COUNT_PAGES = """
import resource
from nmt.allocator import keep_freed_memory
print(keep_freed_memory())
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    b"x" * 2**26
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES_OF_A_BLOCK = 2**26 // 4096


def count_pages(**environment: str) -> tuple[bool, int]:
    """Whether memory is kept, and how many pages that takes."""
    bare = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-c", COUNT_PAGES]
    done = subprocess.run(command, env=bare | environment, check=True, capture_output=True, text=True)
    kept, pages = done.stdout.split()
    return kept == "True", int(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the system's allocator is not glibc's")
def test_a_block_that_was_freed_is_used_again() -> None:
    kept, pages = count_pages()
    assert kept
    assert pages < 2 * PAGES_OF_A_BLOCK
    assert count_pages(NMT_MALLOC="system")[1] > 2 * pages


@pytest.mark.parametrize(
    "environment",
    [
        {"NMT_MALLOC": "system"},
        {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"},
        {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"},
    ],
)
def test_what_a_user_decided_stays(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_has_decided(environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ctypes, "CDLL", None)
    assert not keep_freed_memory()


def test_settings_of_something_else_decide_nothing() -> None:
    assert not user_has_decided({"GLIBC_TUNABLES": "glibc.cpu.x86_shstk=off", "NMT_MALLOC": "", "LD_PRELOAD": "x.so"})


def test_a_system_without_glibc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert not keep_freed_memory()


# Meets each shape twice: what is made at the second time was thrown away before.
MAKE_KERNELS = f"""
import torch
from nmt.allocator import keep_few_kernels
keep_few_kernels()
layer = torch.nn.LSTM(8, 8)
for _ in range(2):
    for length in range(1, {FEW_KERNELS + 10}):
        layer(torch.ones(length, 1, 8))
    print("again", flush=True)
"""


def kernels_made_again(**environment: str) -> int:
    bare = {name: value for name, value in os.environ.items() if name not in KERNELS}
    command = [sys.executable, "-c", MAKE_KERNELS]
    verbose = {"ONEDNN_VERBOSE": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=bare | verbose | environment, check=True, capture_output=True, text=True)
    first, second, _ = done.stdout.split("again\n")
    assert first.count("create:cache_miss,cpu,rnn") >= FEW_KERNELS + 9
    return second.count("create:cache_miss,cpu,rnn")


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
def test_few_kernels_are_kept_unless_the_user_has_said_how_many() -> None:
    assert kernels_made_again() >= FEW_KERNELS
    assert kernels_made_again(DNNL_PRIMITIVE_CACHE_CAPACITY="1000") == 0
