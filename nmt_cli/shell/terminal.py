"""What a terminal adds to text: colors, and a pager for long pages. Pipes and files get the plain text."""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import IO

from nmt.interruptions import handled

STYLES = {"heading": "1", "name": "36", "note": "2", "error": "1;31", "warning": "33"}  # codes of ANSI terminals
OF_LEVELS = {"WARNING": "warning", "ERROR": "error", "CRITICAL": "error"}  # levels of the log

# Parts of a page: the word before the usage, the title of a table, a comment before an example, a flag or key of a row.
_PARTS = re.compile(
    r"^(?:(?P<usage>usage:)|(?P<heading>\S.*)(?=\n  )|  (?P<note># .*)|  (?P<name>--?\S+|[\w.]+=))", re.MULTILINE
)


def wants_color(stream: IO[str]) -> bool:
    """Whether text on a stream is colored: on a terminal, unless NO_COLOR, FORCE_COLOR or TERM=dumb says otherwise."""
    if os.environ.get("NO_COLOR") or os.environ.get("FORCE_COLOR"):
        return not os.environ.get("NO_COLOR")
    return os.environ.get("TERM") != "dumb" and _is_terminal(stream)


def painted(text: str, style: str | None, stream: IO[str]) -> str:
    """Return text in a style of ``STYLES``, or unchanged if the stream gets no colors."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and wants_color(stream) else text


def show_page(page: str) -> None:
    """Print a page of help. On a terminal, it has colors, and a page that is longer than the screen goes through a pager."""
    pager = _pager_for(page)
    if wants_color(sys.stdout):
        page = _PARTS.sub(_paint_part, page)
    if pager is None or not _was_paged(page, pager):
        print(page)


def _paint_part(match: re.Match[str]) -> str:
    part = match.lastgroup or ""
    style = "heading" if part == "usage" else part
    return match[0].replace(match[part], painted(match[part], style, sys.stdout), 1)


def _pager_for(page: str) -> str | None:
    """Return the command of the pager; None if the page needs none, or the user wants none."""
    if not _is_terminal(sys.stdout):
        return None
    import shutil  # other starts do not need it

    fits = page.count("\n") + 1 < shutil.get_terminal_size().lines
    pager = os.environ.get("PAGER", "less" if shutil.which("less") else "").strip()
    return None if fits or pager in ("", "cat") else pager


def _was_paged(page: str, pager: str) -> bool:
    """Show a page in a pager. Returns False if there is no such program."""
    import subprocess

    options = {"LESS": "FRX", **os.environ}  # less: end at once if all fits, show colors, leave the page on the screen
    process = subprocess.Popen(
        pager, shell=True, env=options, stdin=subprocess.PIPE, encoding="utf-8", errors="replace"
    )
    with handled([signal.SIGINT, signal.SIGPIPE], signal.SIG_IGN):  # both belong to the pager, which may leave early
        process.communicate(page)
    return process.returncode != 127


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
