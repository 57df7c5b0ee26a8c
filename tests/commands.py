"""Running the commands in copies of a process that has torch and the like already, which takes most of their time.

Such a copy has pipes, a folder, a locale and an end of its own, as a process that a user starts has: only what is slow to
import is there. Nothing of ours is: each copy imports it itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

LIGHT = ("numpy", "hydra", "omegaconf", "sacrebleu", "sentencepiece")
HEAVY = (*LIGHT, "torch", "safetensors.torch", "torch._dynamo")  # the last one is a second, and training needs it
REPORT = 16  # bytes of a number that is told of a copy
WITHOUT_TORCH = ("preprocess", "score", "compare")


def run_copy(
    command: str,
    *arguments: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    before: str = "",
    timeout: float | None = None,
    **environment: str | None,
) -> subprocess.CompletedProcess[bytes]:
    """As ``subprocess.run`` of ``python -c "from nmt_cli.COMMAND import main; main()"`` with its output captured.

    ``before``: Python that the copy runs first, to make its surroundings what a test is about; ``environment``: what is set
    in it, or with None is not.
    """
    copy = start_copy(command, *arguments, cwd=cwd, before=before, **environment)
    output, log = copy.communicate(stdin, timeout)
    return subprocess.CompletedProcess([command, *map(str, arguments)], copy.wait(), output, log)


def start_copy(
    command: str, *arguments: str | Path, cwd: Path | None = None, before: str = "", **environment: str | None
) -> Copy:
    """The same, while it runs: as ``subprocess.Popen`` with three pipes."""
    original = _original(LIGHT if command in WITHOUT_TORCH else HEAVY, tuple(sorted(environment.items())))
    return original.start([str(cwd or Path.cwd()), f"nmt_cli.{command}", before, *map(str, arguments)])


class Copy:
    """A running command, with what tests use of ``subprocess.Popen``."""

    def __init__(self, report: int, stdin: int, stdout: int, stderr: int) -> None:
        """``report``: where the process that waits for it writes its number, and its status when it ends."""
        self._report = report
        self.pid = int(os.read(report, REPORT))
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb")

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"copy {self.pid}", timeout or 0)
            self.returncode = int(os.read(self._report, REPORT))
            os.close(self._report)
        return self.returncode

    def communicate(self, given: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Its output and its log, when it has ended. It is killed if that takes longer than ``timeout`` seconds."""
        with self.stdout, self.stderr, ThreadPoolExecutor(3) as threads:
            threads.submit(self._feed, given)
            output, log = threads.submit(self.stdout.read), threads.submit(self.stderr.read)
            try:
                self.wait(timeout)
            except BaseException:  # its time is over
                self.send_signal(signal.SIGKILL)
                raise
        return output.result(), log.result()

    def _feed(self, given: bytes) -> None:
        with contextlib.suppress(BrokenPipeError), self.stdin:  # nobody has to read all
            self.stdin.write(given)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@functools.cache
def _original(libraries: tuple[str, ...], environment: tuple[tuple[str, str | None], ...]) -> _Original:
    return _Original(libraries, dict(environment))


class _Original:
    """The process that copies are made of."""

    def __init__(self, libraries: tuple[str, ...], environment: dict[str, str | None]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), *libraries],
            stdin=subprocess.PIPE,  # Python sees to it at the start that pipes cannot be wound back
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in (os.environ | environment).items() if value is not None},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        atexit.register(self._end)

    def start(self, words: list[str]) -> Copy:
        """``words``: a folder, a module, what is run before its ``main``, and the arguments."""
        (given, feed), (out, printed), (complaints, said), (report, told) = (os.pipe() for _ in range(4))
        request = json.dumps([os.fsencode(word).decode("latin-1") for word in words])
        theirs = [given, printed, said, told]
        socket.send_fds(self._channel, [request.encode()], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        return Copy(report, feed, out, complaints)

    def _end(self) -> None:
        self._channel.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _serve(channel: socket.socket) -> tuple[str, str]:
    """Copies this process for each request; returns in the copy, with the module to run and what is to be run before it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for the copies
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, 2**20, 4)
        if not request:
            os._exit(0)
        if not os.fork():
            break
        for descriptor in descriptors:
            os.close(descriptor)
    channel.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, told = descriptors
    if child := os.fork():
        _tell(told, child, streams)
    os.close(told)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    cwd, module, before, *arguments = [os.fsdecode(word.encode("latin-1")) for word in json.loads(request)]
    os.chdir(cwd)
    sys.argv = ["-c", *arguments]
    return module, before


def _tell(report: int, child: int, streams: list[int]) -> NoReturn:
    """The number of a copy, and its status when it has ended."""
    for descriptor in streams:
        os.close(descriptor)
    os.write(report, f"{child:{REPORT}}".encode())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # nobody asks any more
        os.write(report, f"{status:{REPORT}}".encode())
    os._exit(0)


def _run(module: str) -> None:
    """Ends as a process ends, but for taking all modules to pieces, which takes longer than most commands.

    What is more than a number or a full pipe is left to Python.
    """
    try:
        importlib.import_module(module).main()
        status = 0
    except SystemExit as request:
        if not isinstance(request.code, int | None):
            raise
        status = request.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError, AttributeError):  # full, closed by the command, or none from the start
        sys.exit(status)
    os._exit(status % 256)


if __name__ == "__main__":
    sys.path[0] = ""  # as with -c
    for library in sys.argv[2:]:
        importlib.import_module(library)
    gc.freeze()  # at its end a copy would look through all of it for garbage, which takes longer than most commands
    called, first = _serve(socket.socket(fileno=int(sys.argv[1])))
    exec(first)
    _run(called)
