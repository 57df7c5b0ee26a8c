"""Colors and the pager: on a terminal, and never in pipes or files."""

from __future__ import annotations

import io
import logging
import os
import pty
import sys
from pathlib import Path

import pytest

from nmt_cli import process
from nmt_cli.shell import terminal
from tests.commands import run_copy

COLOR = "\x1b["


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "PAGER", "LESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LINES", "24")


@pytest.mark.parametrize(
    ("stream", "variables", "colored"),
    [
        (Screen(), {}, True),
        (io.StringIO(), {}, False),
        (Screen(), {"NO_COLOR": "1"}, False),
        (Screen(), {"NO_COLOR": ""}, True),
        (Screen(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": ""}, False),
        (Screen(), {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        (Screen(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_terminals_get_colors_unless_variables_say_otherwise(
    stream: io.StringIO, variables: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal.wants_color(stream) is colored
    assert terminal.painted("error", "error", stream) == ("\x1b[1;31merror\x1b[0m" if colored else "error")


def test_headings_flags_and_comments_of_a_page_have_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", screen := Screen())
    page = "nmt-x: y\n\nusage: nmt-x\n\nexamples\n  # a file\n  nmt-x --y 1\n\noptions\n  --y N  Number\n  a.b=N  Other"
    terminal.show_page(page)
    assert screen.getvalue() == (
        "nmt-x: y\n\n\x1b[1musage:\x1b[0m nmt-x\n\n\x1b[1mexamples\x1b[0m\n  \x1b[2m# a file\x1b[0m\n  nmt-x --y 1\n\n"
        "\x1b[1moptions\x1b[0m\n  \x1b[36m--y\x1b[0m N  Number\n  \x1b[36ma.b=\x1b[0mN  Other\n"
    )


def test_help_and_errors_have_no_colors_in_pipes_and_results_never(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a cat\n")
    for words in (["--help", "ref"], ["--baem", "4"]):
        done = run_copy("score", *words, cwd=tmp_path, TERM="xterm")
        assert COLOR.encode() not in done.stdout + done.stderr
        forced = run_copy("score", *words, cwd=tmp_path, FORCE_COLOR="1")
        assert COLOR.encode() in forced.stdout + forced.stderr
    scored = ["--sys", "text", "--ref", "text", "--metrics", "exact"]
    assert COLOR.encode() not in run_copy("score", *scored, cwd=tmp_path, FORCE_COLOR="1").stdout


@pytest.mark.parametrize(
    ("level", "shown"),
    [(logging.INFO, "INFO"), (logging.WARNING, "\x1b[33mWARNING\x1b[0m"), (logging.ERROR, "\x1b[1;31mERROR\x1b[0m")],
)
def test_levels_of_the_log_have_colors(level: int, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    handler = process._StderrHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s | %(message)s"))
    handler.emit(logging.LogRecord("nmt", level, __file__, 1, "a WARNING", None, None))
    assert screen.getvalue() == f"{shown} | a WARNING\n"


LONG = "\n".join(["lines", *(f"  --line{number} N" for number in range(100))])


def shown_on_a_terminal(page: str, **variables: str) -> str:
    """What a terminal of 24 lines shows when another process prints a page."""
    child, screen = pty.fork()
    if not child:
        code = "import sys; from nmt_cli.shell.terminal import show_page; show_page(sys.argv[1])"
        kept = {name: value for name, value in os.environ.items() if name != "PAGER"} | variables
        os.execve(sys.executable, [sys.executable, "-c", code, page], kept)
    written = b""
    try:
        while more := os.read(screen, 65536):
            written += more
    except OSError:  # the process has ended
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(screen)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("page", "pager", "paged"),
    [
        (LONG, "head -n 3; echo paged", True),
        (LONG, "true; echo paged", True),  # it leaves before it has read the page
        ("short", "echo paged", False),
        (LONG, "", False),
        (LONG, "cat", False),
    ],
)
def test_only_long_pages_go_through_the_pager(page: str, pager: str, paged: bool) -> None:
    shown = shown_on_a_terminal(page, PAGER=pager, NO_COLOR="1")
    assert shown.endswith("paged\n") if paged else shown == f"{page}\n"
    assert "Traceback" not in shown and "Broken pipe" not in shown


def test_a_page_in_a_pipe_has_no_pager(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "false")
    terminal.show_page(LONG)
    assert capsys.readouterr().out == f"{LONG}\n"
