"""Running the commands in copies of a process that has torch and the like already, which takes most of their time.

Such a copy has pipes, a folder, a locale and an end of its own, as a process that a user starts has: only what is slow to
import is there. Nothing of ours is: each copy imports it itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

LIGHT = ("numpy", "hydra", "omegaconf", "sacrebleu", "sentencepiece")
HEAVY = (*LIGHT, "torch", "safetensors.torch", "torch._dynamo")  # the last one is a second, and training needs it
WITHOUT_TORCH = ("preprocess", "score")


def run_copy(
    command: str,
    *arguments: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    before: str = "",
    **environment: str | None,
) -> subprocess.CompletedProcess[bytes]:
    """As ``subprocess.run`` of ``python -c "from nmt_cli.COMMAND import main; main()"`` with its output captured.

    ``before``: Python that the copy runs first, to make its surroundings what a test is about; ``environment``: what is set
    in it, or with None is not. Copies of one process run one after the other.
    """
    original = _original(LIGHT if command in WITHOUT_TORCH else HEAVY, tuple(sorted(environment.items())))
    return original.run([f"nmt_cli.{command}", before], [*map(str, arguments)], stdin, cwd or Path.cwd())


@functools.cache
def _original(libraries: tuple[str, ...], environment: tuple[tuple[str, str | None], ...]) -> _Original:
    return _Original(libraries, dict(environment))


class _Original:
    """The process that copies are made of."""

    def __init__(self, libraries: tuple[str, ...], environment: dict[str, str | None]) -> None:
        self._channel, theirs = socket.socketpair()
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

    def run(
        self, program: list[str], arguments: list[str], stdin: bytes, cwd: Path
    ) -> subprocess.CompletedProcess[bytes]:
        """``program``: a module, and what is run before its ``main``."""
        (given, feed), (out, printed), (complaints, said) = os.pipe(), os.pipe(), os.pipe()
        request = json.dumps([os.fsencode(word).decode("latin-1") for word in (str(cwd), *program, *arguments)])
        socket.send_fds(self._channel, [request.encode()], [given, printed, said])
        for descriptor in (given, printed, said):
            os.close(descriptor)
        log: list[bytes] = []
        feeding = threading.Thread(target=_feed, args=(feed, stdin))
        listening = threading.Thread(target=lambda: log.append(_all_of(complaints)))
        feeding.start()
        listening.start()
        try:
            output = _all_of(out)
            status = int(self._channel.recv(100))
        except BaseException:  # its time is over
            self._end()
            _original.cache_clear()
            raise
        feeding.join()
        listening.join()
        return subprocess.CompletedProcess([program[0], *arguments], status, output, log[0])

    def _end(self) -> None:
        self._channel.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _feed(descriptor: int, content: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as pipe:  # nobody has to read all
        pipe.write(content)


def _all_of(descriptor: int) -> bytes:
    with open(descriptor, "rb") as pipe:
        return pipe.read()


def _serve(channel: socket.socket) -> tuple[str, str]:
    """Copies this process for each request and tells its end; returns in the copy, with the module to run and what is to be
    run before it."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, 2**20, 3)
        if not request:
            os._exit(0)
        child = os.fork()
        if not child:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    channel.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    cwd, module, before, *arguments = [os.fsdecode(word.encode("latin-1")) for word in json.loads(request)]
    os.chdir(cwd)
    sys.argv = ["-c", *arguments]
    return module, before


if __name__ == "__main__":
    sys.path[0] = ""  # as with -c
    for library in sys.argv[2:]:
        importlib.import_module(library)
    called, first = _serve(socket.socket(fileno=int(sys.argv[1])))
    exec(first)
    importlib.import_module(called).main()
