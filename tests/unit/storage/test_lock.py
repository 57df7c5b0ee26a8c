"""One writer per folder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.storage import lock as lock_module
from nmt.storage.lock import one_writer


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
