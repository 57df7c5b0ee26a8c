"""A copy of a process that has torch already ends, reads and writes as the command that a user starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run_copy


@pytest.mark.parametrize(
    ("command", "arguments", "given", "status"),
    [
        ("score", ["--ref", "text", "--metrics", "exact"], "größer\n", 0),
        ("score", ["--ref", "text", "--metrics", "exact"], "a\n" * 100_000, 65),
        ("score", ["--user-dir", "plugin"], "", 1),
        ("generate", ["--path", "größer"], "a\n" * 100_000, 66),  # nobody reads that
    ],
    ids=["a figure", "a complaint", "a traceback", "a folder that is missing"],
)
def test_a_copy_is_like_the_command(
    command: str, arguments: list[str], given: str, status: int, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("größer\n", encoding="utf-8")
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "__init__.py").write_text("import a_module_that_nobody_has\n")
    whole = subprocess.run(
        [sys.executable, "-c", f"from nmt_cli.{command} import main; main()", *arguments],
        input=given.encode(),
        capture_output=True,
        cwd=tmp_path,
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"},
        check=False,
    )
    copy = run_copy(command, *arguments, stdin=given.encode(), cwd=tmp_path, LC_ALL="C", PYTHONUTF8="0")
    assert copy.returncode == whole.returncode == status
    assert copy.stdout == whole.stdout
    assert copy.stderr == whole.stderr


def test_a_copy_that_is_killed_ends_by_its_signal(tmp_path: Path) -> None:
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "__init__.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    assert run_copy("score", "--user-dir", "plugin", cwd=tmp_path).returncode == -9
