"""What the commands write to stderr."""

from __future__ import annotations

import contextlib
import io
import logging
import sys

import pytest

from nmt_cli import process


class Unbuffered(io.StringIO):
    """Notes every piece that is written, as each of them would be a system call under PYTHONUNBUFFERED."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        if text:
            self.pieces.append(text)
        return len(text)


def test_a_line_is_written_with_its_end() -> None:
    with contextlib.redirect_stderr(Unbuffered()) as stderr:
        process.say("one line")
    assert stderr.pieces == ["one line\n"]


@pytest.mark.parametrize("bars", [True, False])
def test_a_line_of_the_log_is_written_with_its_end(bars: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import tqdm

    if bars:
        monkeypatch.setitem(sys.modules, "tqdm", tqdm)
    else:
        monkeypatch.delitem(sys.modules, "tqdm")
    with contextlib.redirect_stderr(Unbuffered()) as stderr:
        process._StderrHandler().emit(logging.LogRecord("nmt", logging.INFO, __file__, 1, "%d lines", (3,), None))
    assert stderr.pieces == ["3 lines\n"]
