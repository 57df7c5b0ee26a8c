"""Standard streams and logging of the commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import io
import logging
import sys

logger = logging.getLogger("nmt")


def use_utf8() -> None:
    """Text is UTF-8 whatever the locale says, and ``\\n`` ends a line everywhere."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")


def configure_logging() -> None:
    """Send the log of ``nmt`` to stderr as plain lines; a second call changes nothing."""
    if any(isinstance(handler, _Lines) for handler in logger.handlers):
        return
    handler = _Lines()
    handler.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


class _Lines(logging.Handler):
    """Writes to whatever ``sys.stderr`` is now, without tearing a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            tqdm = sys.modules.get("tqdm")  # if nobody imported it, there is no bar
            if tqdm is not None:
                tqdm.tqdm.write(line, file=sys.stderr)
            else:
                print(line, file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)
