"""A command as a process: standard streams (results on stdout, everything else on stderr), the log, and the signals that end
it. While a model is trained, ``nmt/training/loop/trainer.py`` handles them and saves first."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from nmt.interruptions import handled
from nmt_cli.shell.terminal import OF_LEVELS, painted

logger = logging.getLogger("nmt")


def use_utf8() -> None:
    """Make the standard streams UTF-8 in every locale, with ``\\n`` at the end of lines. A closed stream reads as empty."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it (``<&-``); nothing further on has to know
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the process
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")


@contextlib.contextmanager
def ignoring_stderr_errors() -> Iterator[None]:
    """Ignore errors of writing to stderr in the block, and write nothing to it afterwards."""
    try:
        yield
    except OSError:
        discard(sys.stderr)


def say(line: str) -> None:
    """Write a line to stderr, if it is open.

    Text and newline are one write: several processes may share an unbuffered stderr (torchrun, PYTHONUNBUFFERED), and a
    separate newline could follow the line of another process.
    """
    with ignoring_stderr_errors():
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def discard(stream: IO[str]) -> None:
    """Discard the rest of a stream and its buffer, which Python would fail to write at exit."""
    with contextlib.suppress(OSError):  # a stream of a test or a notebook has no file descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def configure_logging(job: str | None = None) -> None:
    """Send the log of ``nmt`` to stderr as plain lines; a second call only changes which ``job`` of a sweep they name.

    Ranks other than 0 log warnings and errors only.
    """
    handler = next((handler for handler in logger.handlers if isinstance(handler, _StderrHandler)), None)
    if handler is not None and job is None:
        return
    rank = os.environ.get("RANK", "0") if os.environ.get("WORLD_SIZE", "1") != "1" else "0"
    who = ("" if job is None else f"{job} | ") + ("" if rank == "0" else f"rank {rank} | ")
    handler = handler or _StderrHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s | %(levelname)s | {who}%(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if rank == "0" else logging.WARNING)


class _StderrHandler(logging.Handler):
    """Write to the current ``sys.stderr`` without breaking a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = painted(record.levelname, OF_LEVELS.get(record.levelname), sys.stderr)
            line = self.format(record).replace(record.levelname, level, 1)
            tqdm = sys.modules.get("tqdm")  # if nobody imported it, there is no bar
            if tqdm is None:
                say(line)
            else:
                with ignoring_stderr_errors():
                    tqdm.tqdm.write(f"{line}\n", file=sys.stderr, end="")
        except Exception:
            self.handleError(record)


ENDING = (signal.SIGTERM, signal.SIGUSR1)  # both from batch systems
STATUS_INTERRUPTED, STATUS_TERMINATED = 130, 75


class Terminated(KeyboardInterrupt):
    """A signal of ``ENDING``, as an exception that unwinds everything like Ctrl-C, so that temporary files are removed."""

    exit_status = STATUS_TERMINATED

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} before the end; run the same command again")


@contextlib.contextmanager
def leaving_on_signals() -> Iterator[None]:
    """End the process on a signal while a command imports its modules and reads its options. Nothing is written yet,
    and an exception could look like a fault of an imported library. Signals that the caller ignores (``nohup``) or
    handles stay as they are."""
    with handled(_unhandled(), _leave):
        yield


def leave_on_signals() -> None:
    """Do the same as ``leaving_on_signals`` from now on, until other handlers replace it."""
    for number in _unhandled():
        signal.signal(number, _leave)


def _unhandled() -> list[signal.Signals]:
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    return [number for number in (*ENDING, signal.SIGINT) if signal.getsignal(number) in defaults]


def _leave(number: int, frame: object) -> None:
    interrupted = number == signal.SIGINT
    say(f"{Path(sys.argv[0]).name}: {'interrupted' if interrupted else Terminated(number)}")
    os._exit(STATUS_INTERRUPTED if interrupted else STATUS_TERMINATED)


@contextlib.contextmanager
def cleaning_up_on_sigterm() -> Iterator[None]:
    """Raise ``Terminated`` in the block on SIGTERM or SIGUSR1, and ``KeyboardInterrupt`` on SIGINT. A caller's own handlers
    stay."""
    if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, _leave):
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: object) -> None:
        if os.getpid() == process:
            raise Terminated(number)
        signal.signal(number, signal.SIG_DFL)  # a forked worker has nothing to clean up
        os.kill(os.getpid(), number)

    replaced = [signal.SIGINT] if signal.getsignal(signal.SIGINT) is _leave else []
    with handled(ENDING, stop), handled(replaced, signal.default_int_handler):
        yield
