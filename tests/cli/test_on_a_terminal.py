"""What nmt-generate leaves on a terminal: answers, and no bar between them or where somebody types."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_models import in_english, write_tiny_model

SENTENCES = ["ein mann", "zwei hunde laufen", "schnee rot"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "lstm")


class Terminal:
    """The two ends of one: what a process has, and what somebody in front of it reads and types."""

    def __init__(self) -> None:
        self._screen, self.process = pty.openpty()
        self._unread = b""  # what came together with what was waited for
        fcntl.ioctl(self.process, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
        lines = termios.tcgetattr(self.process)
        lines[3] &= ~termios.ECHO  # what was typed is no part of what is read
        termios.tcsetattr(self.process, termios.TCSANOW, lines)

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def until(self, wanted: str) -> str:
        """What is written up to ``wanted`` and with it; what there is if all writers have gone."""
        found = self._unread
        with contextlib.suppress(OSError):
            while wanted.encode() not in found and (more := os.read(self._screen, 4096)):
                found += more
        before, end, self._unread = found.partition(wanted.encode())
        return (before + end).decode()

    def rest(self) -> str:
        os.close(self.process)
        return self.until("\0")


def screen(written: str) -> list[str]:
    """The lines that stay after all that was written. A line that is cleared is empty."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[A|.", written, flags=re.DOTALL):
        if token == "\x1b[A":
            row -= 1
        elif token == "\r":
            column = 0
        elif token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + token + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


@contextlib.contextmanager
def generating(model: Path, *arguments: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "nmt_cli.generate", "--path", str(model), "--beam", "2", *arguments]
    process = subprocess.Popen(command, **streams)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_no_bar_stands_between_what_is_typed_and_its_answers(model: Path) -> None:
    terminal = Terminal()
    ends = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.process)
    with generating(model, **ends) as process:
        begun = terminal.until("--input FILE\r\n")
        assert "reading from the terminal" in begun
        assert "engine translates" in terminal.until("\n")
        for sentence in SENTENCES:
            terminal.type(f"{sentence}\n")
            assert terminal.until("\n") == f"{in_english(sentence)}\r\n"
        terminal.type("\x04")
        assert process.wait(60) == 0
    assert terminal.rest() == ""


def test_answers_on_a_terminal_stand_above_the_bar(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    terminal = Terminal()
    arguments = ("--input", str(tmp_path / "text"), "--buffer-size", "1")
    ends: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": terminal.process, "stderr": terminal.process}
    with generating(model, *arguments, **ends) as process:
        os.close(terminal.process)
        written = terminal.until("\0")
        assert process.wait(60) == 0
    engine, *answers, bar = screen(written)
    assert "engine translates" in engine
    assert answers == [in_english(sentence) for sentence in SENTENCES]
    assert bar.startswith("translated: 100%") and " 3/3 " in bar


def test_a_bar_that_is_the_only_thing_on_the_terminal_is_shown(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ein mann\n")
    terminal = Terminal()
    ends: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": terminal.process}
    with generating(model, "--input", str(tmp_path / "text"), **ends) as process:
        os.close(terminal.process)
        engine, bar = screen(terminal.until("\0"))
        assert "engine translates" in engine and bar.startswith("translated: 100%") and " 1/1 " in bar
        assert process.communicate()[0].decode() == f"{in_english('ein mann')}\n"
