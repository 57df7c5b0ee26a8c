"""A command as a process: standard streams (results on stdout, everything else on stderr), the log, and SIGTERM outside of
training, which has its own way to stop (``nmt/training/loop/trainer.py``)."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import IO

from nmt.interruptions import handled

logger = logging.getLogger("nmt")


def use_utf8() -> None:
    """Text is UTF-8 whatever the locale says, and ``\\n`` ends a line everywhere. A closed stream reads as empty."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it (``<&-``); nothing further on has to know
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the process
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")


@contextlib.contextmanager
def expendable() -> Iterator[None]:
    """For what is shown on stderr: where it cannot be written, the command goes on, and is silent from then on."""
    try:
        yield
    except OSError:
        discard(sys.stderr)


def say(line: str) -> None:
    """A line on stderr, if somebody can read it.

    It is written in one go: where several processes share stderr (torchrun) and it has no buffer (PYTHONUNBUFFERED, as
    in many containers), an end that followed by itself could land behind the line of another process.
    """
    with expendable():
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def discard(stream: IO[str]) -> None:
    """Send the rest of a stream nowhere, what waits in its buffer included: Python would fail to write it at exit."""
    with contextlib.suppress(OSError):  # a stream of a test or a notebook has no file descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def configure_logging(job: str | None = None) -> None:
    """Send the log of ``nmt`` to stderr as plain lines; a second call only changes which ``job`` of a sweep they name.

    Of several processes that torchrun started only the first one tells what goes as it should.
    """
    handler = next((handler for handler in logger.handlers if isinstance(handler, _Lines)), None)
    if handler is not None and job is None:
        return
    rank = os.environ.get("RANK", "0") if os.environ.get("WORLD_SIZE", "1") != "1" else "0"
    who = ("" if job is None else f"{job} | ") + ("" if rank == "0" else f"process {rank} | ")
    handler = handler or _Lines()
    handler.setFormatter(logging.Formatter(f"%(asctime)s | %(levelname)s | {who}%(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if rank == "0" else logging.WARNING)


class _Lines(logging.Handler):
    """Writes to whatever ``sys.stderr`` is now, without tearing a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            tqdm = sys.modules.get("tqdm")  # if nobody imported it, there is no bar
            if tqdm is None:
                say(line)
            else:
                with expendable():
                    tqdm.tqdm.write(f"{line}\n", file=sys.stderr, end="")
        except Exception:
            self.handleError(record)


class Terminated(KeyboardInterrupt):
    """SIGTERM, as an exception that unwinds everything like Ctrl-C, so that temporary files are removed."""


@contextlib.contextmanager
def cleaning_up_on_sigterm() -> Iterator[None]:
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:  # somebody listens already
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: object) -> None:
        if os.getpid() == process:
            raise Terminated
        signal.signal(number, signal.SIG_DFL)  # a forked worker has nothing to clean up
        os.kill(os.getpid(), number)

    with handled([signal.SIGTERM], stop):
        yield
