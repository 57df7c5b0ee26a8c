"""Real shells on a terminal of their own, for tests that press keys."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import time
from pathlib import Path
from types import TracebackType

TAB, CLEAR, SHOW = "\t", "\x15", "\x07"  # Ctrl-U; Ctrl-G is bound to print the line
LONGEST = 20.0  # seconds

# Starts of the shells without the files of a user, and what binds Ctrl-G.
STARTS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "PS1='> '; bind 'set enable-bracketed-paste off'; "
        """bind -x '"\\C-g": printf "<%s>" "$READLINE_LINE"'; bind '"\\C-t": insert-completions'""",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "PS1='> '; unsetopt zle_bracketed_paste 2> /dev/null; autoload -U compinit && compinit -u -D; "
        "show() { print -n \"<$BUFFER>\" }; zle -N show; bindkey '^G' show; bindkey '^U' kill-whole-line; "
        "zstyle ':completion:all:*' completer _all_matches _complete; zle -C all complete-word _generic; "
        "zstyle ':completion:all:*' insert yes; bindkey '^T' all",
    ),
}


class Shell:
    """A shell; ``completed`` types words and a key, and returns the line that this makes."""

    def __init__(self, name: str, folder: Path, script: str, home: Path | None = None) -> None:
        words, setup = STARTS[name]
        self._process, self._terminal = pty.fork()
        if not self._process:
            os.chdir(folder)
            kept = {"PATH": os.environ["PATH"], "HOME": str(home or folder), "TERM": "dumb", "COLUMNS": "300"}
            os.execvpe(words[0], words, kept)
        self._send(f"{setup}\n{script}\necho re''ady\n")
        self._until("ready\r?\n")

    def completed(self, line: str, key: str = TAB) -> str:
        """Return the line after a key was pressed at its end."""
        self._send(f"{CLEAR}{line}{key}{SHOW}")
        found = re.findall(r"<([^<>]*)>", self._until(r"<[^<>]*>"))[-1]
        self._send(CLEAR)
        return str(found)

    def candidates(self, line: str) -> list[str]:
        """Return all words that complete the last word of a line."""
        completed = self.completed(line, "\x14")
        return [] if completed == line else completed.removeprefix(line[: line.rfind(" ") + 1]).split()

    def shown(self, line: str) -> str:
        """Return what appears on the screen when a key is pressed at the end of a line."""
        self._send(f"{CLEAR}{line}{TAB}{TAB}{SHOW}")
        screen = self._until(r"<[^<>]*>")
        self._send(CLEAR)
        return screen

    def _send(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _until(self, pattern: str) -> str:
        written, end = "", time.monotonic() + LONGEST
        while not re.search(pattern, written):
            assert time.monotonic() < end and select.select([self._terminal], [], [], LONGEST)[0], written
            written += os.read(self._terminal, 65536).decode(errors="replace")
        return written

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._terminal)
