"""Colors on terminals, and a pager for long pages. Pipes and files get the plain text."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from typing import IO

from nmt.interruptions import handled

STYLES = {"heading": "1", "name": "36", "note": "2", "error": "1;31", "warning": "33"}  # codes of ANSI terminals
OF_LEVELS = {"WARNING": "warning", "ERROR": "error", "CRITICAL": "error"}  # levels of the log

# Parts of a page: the word before the usage, the title of a table, a comment before an example, a flag or key of a row.
_PARTS = re.compile(r"^(?:(?P<heading>usage:|\S.*(?=\n  ))|  (?P<note># .*)|  (?P<name>--?\S+|[\w.]+=))", re.MULTILINE)


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
    page = with_styles(page, lambda part, style: painted(part, style, sys.stdout))
    if _is_terminal(sys.stdout) and os.environ.get("PAGER") not in ("", "cat"):
        import pydoc  # other starts need neither of them
        import shutil

        if page.count("\n") + 1 >= shutil.get_terminal_size().lines:
            os.environ.setdefault("LESS", "RX")  # show colors, leave the page on the screen
            with handled([signal.SIGINT, signal.SIGPIPE], signal.SIG_IGN):  # both belong to the pager
                pydoc.pager(f"{page}\n")
            return
    print(page)


def with_styles(page: str, paint: Callable[[str, str], str]) -> str:
    """Return a page of help with its parts replaced. ``paint`` receives a part and its style."""

    def replaced(match: re.Match[str]) -> str:
        part = match.lastgroup or ""
        return match[0].replace(match[part], paint(match[part], part), 1)

    return _PARTS.sub(replaced, page)


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
