"""Commands of a pipeline: command lines that run in a folder, with a log of their messages."""

from __future__ import annotations

import contextlib
import ctypes
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nmt.config.composing.refusals import as_typed
from nmt.errors import NMTError, UsageError
from nmt.interruptions import held

LOG = "log"
OURS = "nmt-"  # start of the names of nmt's own commands
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_LAST = 3  # last lines of a failed command in its error message

Say = Callable[[str], None]


@dataclass(frozen=True)
class Command:
    """A command line, or a function of this process and the words that describe it and its inputs."""

    words: tuple[str, ...]
    output: str | None = None  # file of the stage's folder that receives the standard output
    action: Callable[[Path], None] | None = field(default=None, compare=False)  # the function; it receives the folder
    scripts: Path | None = None  # folder of a script NAME.py, the first word
    options: tuple[str, ...] = field(default=(), compare=False)  # the last words, which a user chose
    reserved: tuple[str, ...] = field(default=(), compare=False)  # more keys that ``options`` must not set

    def __str__(self) -> str:
        if self.action is not None:
            return f"({' '.join(self.words)})"
        line = shlex.join(self.words)
        return line if self.output is None else f"{line} > {shlex.quote(self.output)}"

    def arguments(self) -> list[str]:
        """Return the words to start: nmt's commands and scripts run with the Python of this process."""
        name, *others = self.words
        if name.startswith(OURS):
            return [sys.executable, "-m", f"nmt_cli.{name.removeprefix(OURS).replace('-', '_')}", *others]
        if self.scripts is not None and name.endswith(".py"):
            return [sys.executable, str(self.scripts / name), *others]
        return list(self.words)


def words_of(options: Mapping[str, Any], section: str) -> list[str]:
    """Return options as words of a command line: ``max_epoch: 8`` becomes ``--max-epoch 8``, a key with a dot stays a key,
    and null omits a flag. ``section``: their name in messages."""
    words = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            raise UsageError(f"{section}.{name} is a group of options; set them one by one, {section}.{name}.KEY=VALUE")
        text = ",".join(map(str, value)) if isinstance(value, list) else as_typed(value)
        flag = f"--{name.replace('_', '-')}"
        if "." in name:
            words.append(f"{name}={text}")
        elif isinstance(value, bool):
            words.append(flag if value else f"{flag}=false")
        elif value is not None:
            words += [flag, text]
    return words


def run_command(command: Command, stage: str, folder: Path, say: Say) -> None:
    """Run a command of a stage in a folder until it ends. Its messages go to the log and to ``say``.

    An interruption sends it SIGTERM, so that it can save; another one kills it.
    """
    say(f"{stage} $ cd {folder} && {command}" if command.action is None else f"{stage}: {command}")
    with contextlib.ExitStack() as files:
        log = files.enter_context(open(folder / LOG, "ab"))
        log.write(f"$ {command}\n".encode())
        log.flush()
        if command.action is not None:
            command.action(folder)
            return
        result = files.enter_context(open(folder / command.output, "wb")) if command.output else subprocess.DEVNULL

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command.arguments(),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=result,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=_end_with_the_pipeline,
            )

        try:
            status, last = _followed(start, log, say)
        except OSError as error:
            raise NMTError(f"{stage} cannot start {command.words[0]}: {error.strerror}") from None
    if status != 0:
        errors = [line for line in last if line.startswith(f"{command.words[0]}: ")] or last
        failed = f"{stage} failed: {command.words[0]} ended with status {status}: {' / '.join(errors) or 'no message'}"
        advice = f"its log is {folder / LOG}; remove the cause, and run the same command again to resume"
        raise NMTError(f"{failed} ({advice})", exit_status=status if status > 0 else 1)


def _end_with_the_pipeline() -> None:
    """Ask Linux to send SIGTERM to this command if its pipeline is killed, so that it saves and ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _followed(start: Callable[[], subprocess.Popen[bytes]], log: IO[bytes], say: Say) -> tuple[int, list[str]]:
    """Start a command and wait for it. Return its status and its last lines."""
    last: list[str] = []
    process: subprocess.Popen[bytes] | None = None
    interrupt: KeyboardInterrupt | None = None
    while process is None or process.returncode is None:
        try:
            if process is None:
                with held():  # no interruption before ``process`` is set: it could not be stopped
                    process = start()
            assert process.stderr is not None
            for line in process.stderr:
                log.write(line)
                log.flush()
                text = line.decode("utf-8", "replace").rstrip("\n")
                last = [*last[1 - _LAST :], text] if text.strip() else last
                say(text)
            process.wait()
        except KeyboardInterrupt as signaled:
            if process is None:
                raise
            if interrupt is not None:
                process.kill()
            interrupt = signaled
            process.send_signal(signal.SIGTERM)
    if interrupt is not None:
        raise interrupt
    return process.returncode, last
