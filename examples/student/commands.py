"""Commands of a pipeline: command lines that run in a folder, with a log of their messages."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import Interrupted, NMTError
from nmt.interruptions import held
from nmt_cli.process import Terminated

HERE = Path(__file__).resolve().parent
LOG = "log"
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_FILES = {"--input", "--output", "--path", "--ref", "--sample", "--seed", "--src", "--sys", "--trainpref"}
_TOLD = 3  # last lines of a failed command in its error message


class CommandFailed(NMTError):
    """A command of a stage ended with a status other than 0."""


@dataclass(frozen=True)
class Command:
    """A command line, and the file of its folder that receives its standard output."""

    words: tuple[str, ...]
    output: str | None = None

    def __str__(self) -> str:
        line = shlex.join(self.words)
        return line if self.output is None else f"{line} > {shlex.quote(self.output)}"

    def is_ours(self) -> bool:
        return self.words[0].startswith("nmt-")

    def check(self) -> list[str] | None:
        """Return the words of a command that only checks the options; None if there is none."""
        if self.is_ours():
            return [*self.arguments(), "--cfg", "job"]
        return [*self.arguments(), "--check"] if self.words[0] == "speed.py" else None

    def options(self) -> tuple[str, ...]:
        """Return the words without input and output files, which are equal for commands that only differ in files."""
        pairs = zip(self.words, ("", *self.words))
        return tuple(word for word, before in pairs if before not in _FILES)

    def arguments(self) -> list[str]:
        """Return the words to start: nmt commands of this Python, and scripts of this folder."""
        name, *others = self.words
        if self.is_ours():
            return [sys.executable, "-m", f"nmt_cli.{name.removeprefix('nmt-').replace('-', '_')}", *others]
        if name.endswith(".py"):
            return [sys.executable, str(HERE / name), *others]
        return list(self.words)


def start_command(command: Command, stage: str, folder: Path, environment: Mapping[str, str], lock: int) -> None:
    """Run a command of a stage in a folder until it ends. Its messages go to the log and to stderr.

    An interruption sends it SIGTERM, so that it can save; another one kills it. ``lock``: inherited file descriptor.
    """
    shown = command if not command.words[0].endswith(".py") else Command(("python", *_script(command)), command.output)
    say(f"{stage} $ cd {folder} && {shown}")
    with contextlib.ExitStack() as files:
        log = files.enter_context(open(folder / LOG, "ab"))
        log.write(f"$ {command}\n".encode())
        log.flush()
        result = files.enter_context(open(folder / command.output, "wb")) if command.output else subprocess.DEVNULL
        starting = functools.partial(
            subprocess.Popen,
            command.arguments(),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=result,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=[lock],
            preexec_fn=_end_with_the_pipeline,
        )
        try:
            status, told = _followed(starting, log, stage)
        except OSError as error:
            raise CommandFailed(f"{stage} cannot start {command.words[0]}: {error.strerror}") from None
    if status != 0:
        message = " / ".join(told[-_TOLD:]) or "no message"
        raise CommandFailed(
            f"{stage} failed: {command.words[0]} ended with status {status}: {message} (its log is "
            f"{folder / LOG}; run the same command again to resume)",
            exit_status=status if status > 0 else 1,
        )


def _script(command: Command) -> tuple[str, ...]:
    return str(HERE / command.words[0]), *command.words[1:]


def _end_with_the_pipeline() -> None:
    """Ask Linux to send SIGTERM to this command if its pipeline is killed, so that it saves and ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _followed(starting: Callable[[], subprocess.Popen[bytes]], log: Any, name: str) -> tuple[int, list[str]]:
    """Start a command and wait for it. Return its status and its last lines. An interruption sends it SIGTERM."""
    told: list[str] = []
    process: subprocess.Popen[bytes] | None = None
    stopped: KeyboardInterrupt | None = None
    while process is None or process.returncode is None:
        try:
            if process is None:
                with held():  # no interruption before ``process`` is set: it could not be stopped
                    process = starting()
            assert process.stderr is not None
            for line in process.stderr:
                log.write(line)
                log.flush()
                text = line.decode("utf-8", "replace").rstrip("\n")
                told = [*told[1 - _TOLD :], text] if text.strip() else told
                say(text)
            process.wait()
        except KeyboardInterrupt as interrupt:
            if process is None:
                raise
            if stopped is not None:
                process.kill()
            stopped = interrupt
            process.send_signal(signal.SIGTERM)
    if stopped is not None:
        status = 128 + (signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT)
        raise Interrupted(
            f"{name} was interrupted; run the same command again to resume", exit_status=status
        ) from stopped
    return process.returncode, told


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
