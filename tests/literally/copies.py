"""Commands for a shell, answered by copies of one process that has torch and nmt already: it takes most of their time.

``python copies.py SOCKET`` listens; ``Shims`` writes the programs that stand in front of PATH and hand over to it what they
were started with: arguments, environment, folder, and the three streams.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

from hydra.core.plugins import Plugins

from nmt.config.presets import COMMANDS, program_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULES = {program_of(command): f"nmt_cli.{command}" for command in COMMANDS}
MODULES["torchrun"] = "torch.distributed.run"
PYTHONS = ("python", "python3")
# The last ones are what torch and Hydra load when they are first used.
WARM = (*MODULES.values(), "nmt.training.assemble", "nmt.translation.translator", "nmt_cli.generate_job")
WARM += ("torch._dynamo", "torch.utils.flop_counter", "numpy.random")
ADDRESS = "NMT_TEST_COPIES"

SHIM = f"""#!{sys.executable} -IS
import json, os, socket, sys
channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect(os.environ["{ADDRESS}"])
socket.send_fds(channel, [json.dumps([os.getcwd(), dict(os.environ), sys.argv]).encode()], [0, 1, 2])
os._exit(int(channel.recv(100) or 1))
"""


class Shims:
    """Programs in a folder of their own, and the process behind them."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in (*MODULES, *PYTHONS):
            (self.programs / name).write_text(SHIM, encoding="utf-8")
            (self.programs / name).chmod(0o755)
        for name in ("pip", "pip3"):  # no test changes the environment that it runs in
            (self.programs / name).write_text(
                f"#!/bin/sh\necho '{name} is not for tests' >&2\nexit 1\n", encoding="utf-8"
            )
            (self.programs / name).chmod(0o755)
        address = folder / "socket"
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]),
            "PYTHON_EXEC": str(self.programs / "python"),  # what torchrun starts
            "PYTHON": "python",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
            ADDRESS: str(address),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "copies.py"), str(address)], env=self.environment, start_new_session=True
        )
        while not address.exists():
            assert self._process.poll() is None, "the process behind the commands has ended"
            time.sleep(0.05)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _serve(address: str) -> list[str]:
    """Copies this process for each request; returns in the copy, with the words of the command."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)  # whoever sees it can connect
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies
    while True:
        channel, _ = listener.accept()
        if not os.fork():
            listener.close()
            return _answered(channel)
        channel.close()


def _answered(channel: socket.socket) -> list[str]:
    """In one more copy; this one waits for its end and tells it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams, _, _ = socket.recv_fds(channel, 2**20, 3)
    if child := os.fork():
        for stream in streams:
            os.close(stream)
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256).encode())
        os._exit(0)
    channel.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    folder, environment, words = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return words


def _end(status: int) -> NoReturn:
    """As a process ends, but for taking all modules to pieces, which takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _status(words: list[str]) -> int:
    """Runs a command; what a shell would see of it."""
    try:
        _run(words)
    except SystemExit as request:
        if isinstance(request.code, str):
            print(request.code, file=sys.stderr)
            return 1
        return request.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _run(words: list[str]) -> None:
    program, *arguments = words
    name = Path(program).name
    if name not in PYTHONS:
        module = MODULES[name]
    else:
        while arguments[:1] == ["-u"]:  # of torchrun
            arguments = arguments[1:]
        if arguments and arguments[0].endswith(".py"):
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
            runpy.run_path(arguments[0], run_name="__main__")
            return
        if arguments[:1] != ["-m"]:
            os.execv(sys.executable, [sys.executable, *arguments])
        module, arguments = arguments[1], arguments[2:]
    sys.argv = [program, *arguments]
    importlib.import_module(module).main()


if __name__ == "__main__":
    sys.path[0] = ""  # as with -c and -m
    for warm in WARM:
        importlib.import_module(warm)
    Plugins.instance()
    gc.freeze()  # a copy that looked through all of it for garbage would copy its memory
    _end(_status(_serve(sys.argv[1])))
