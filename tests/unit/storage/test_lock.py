"""One writer per folder."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.synchronize import Event as EventType
from pathlib import Path

import pytest

from nmt.errors import OutputError
from nmt.storage import lock as lock_module
from nmt.storage.files import atomic_write
from nmt.storage.lock import claimed, one_writer


def test_a_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    code = "import sys, pathlib; from nmt.storage.lock import one_writer; one_writer(pathlib.Path(sys.argv[1])).__enter__()"
    with one_writer(tmp_path):
        second = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert f"process {os.getpid()} on" in second.stderr and second.returncode != 0


def test_a_lock_is_free_again_after_its_block(tmp_path: Path) -> None:
    with one_writer(tmp_path):
        pass
    with one_writer(tmp_path):
        assert (tmp_path / ".lock").exists()


def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock_module.fcntl, "flock", unsupported)
    with one_writer(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / ".lock").read_text()
    assert "cannot be locked (No locks available): make sure that no other process" in caplog.text


def claims(path: Path, begin: EventType) -> int:
    """What a process that writes a file ends with."""
    begin.wait(60)
    try:
        with claimed(path, overwrite=False), atomic_write(path) as file:
            file.write(str(os.getpid()).encode())
    except OutputError as error:
        return error.exit_status
    return 0


def test_of_many_processes_that_claim_a_new_file_at_once_one_gets_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for turn in range(8):
        path, begin, found = tmp_path / f"out{turn}", context.Event(), context.SimpleQueue()
        processes = [
            context.Process(target=lambda path=path, begin=begin, found=found: found.put(claims(path, begin)))
            for _ in range(4)
        ]
        for process in processes:
            process.start()
        begin.set()
        assert sorted(found.get() for _ in processes) == [0, 73, 73, 73]
        for process in processes:
            process.join()
    assert sorted(os.listdir(tmp_path)) == sorted(f"out{turn}" for turn in range(8)), "nothing is left of a claim"


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    (tmp_path / ".out.claim").touch()  # as a killed process leaves it
    with claimed(tmp_path / "out", overwrite=False):
        assert (tmp_path / ".out.claim").exists()
    assert not list(tmp_path.iterdir())
