"""The allocator's settings: when they are made, and that a command really starts with them before torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli import allocator
from nmt_cli.allocator import SETTINGS, SWITCH, VARIABLE, arrange_memory, wanted

ALL = ":".join(f"{key}={value}" for key, value in SETTINGS.items())


def test_settings_are_made_where_there_are_none() -> None:
    assert wanted({}) == ALL


def test_other_tunables_stay() -> None:
    assert wanted({VARIABLE: "glibc.cpu.x86_shstk=off"}) == f"glibc.cpu.x86_shstk=off:{ALL}"


@pytest.mark.parametrize(
    "environment",
    [
        {SWITCH: "system"},
        {VARIABLE: "glibc.malloc.arena_max=2"},
        {VARIABLE: ALL},
        {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"},
    ],
)
def test_what_a_user_decided_stays(environment: dict[str, str]) -> None:
    assert wanted(environment) is None


def test_a_process_that_is_not_the_command_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[str] = []
    monkeypatch.setattr(os, "execve", lambda program, *_: replaced.append(program))
    for name in (VARIABLE, SWITCH, "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    arrange_memory("nmt_cli.train")
    assert replaced == []
    if allocator._has_glibc():
        monkeypatch.setattr(allocator, "_is_command", lambda module: True)
        arrange_memory("nmt_cli.train")
        assert replaced == [sys.executable]


def test_a_system_without_glibc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ValueError(name)

    monkeypatch.setattr(os, "confstr", unknown)
    assert not allocator._has_glibc()


def start(tmp_path: Path, environment: dict[str, str]) -> str:
    """Run a script called nmt-train that prints how it was started, and whether torch was there before."""
    script = tmp_path / "nmt-train"
    script.write_text(
        "import os, sys\n"
        "from nmt_cli.allocator import arrange_memory\n"
        "import nmt_cli.train\n"
        "print('torch' in sys.modules, end=' ')\n"
        "sys.stdout.flush()\n"
        "arrange_memory('nmt_cli.train')\n"
        f"print(os.environ.get('{VARIABLE}', 'unset'), sys.argv[1:])\n"
    )
    bare = {name: value for name, value in os.environ.items() if name not in (VARIABLE, SWITCH, "LD_PRELOAD")}
    command = [sys.executable, str(script), "--lr", "a b"]
    return subprocess.run(
        command, env=bare | environment, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout


@pytest.mark.skipif(not allocator._has_glibc(), reason="the system's allocator is not glibc's")
def test_the_command_starts_once_more_with_the_settings(tmp_path: Path) -> None:
    assert start(tmp_path, {}) == f"False False {ALL} ['--lr', 'a b']\n"


def test_the_command_starts_once_where_memory_is_left_alone(tmp_path: Path) -> None:
    assert start(tmp_path, {SWITCH: "system"}) == "False unset ['--lr', 'a b']\n"
