"""Programs for a shell that stand in front of PATH: each hands its start over to a copy of ``tests/commands.py``.

A program sends its folder, environment, words and streams to a thread of the tests, which asks for the copy.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from nmt.config.composing.programs import program_of
from nmt_cli.command_line.programs import COMMANDS
from tests.commands import DEFERRED, HEAVY, REPORT, original_of, packed

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULES = {program_of(command): f"nmt_cli.{command}" for command in COMMANDS}
MODULES["nmt"] = "nmt_cli.umbrella"
MODULES["torchrun"] = "torch.distributed.run"
PYTHONS = ("python", "python3")
WARM = sorted({*MODULES.values(), *(module for modules in DEFERRED.values() for module in modules)})
WARM += ["torch.utils.flop_counter", "numpy.random"]  # loaded when they are first used
ADDRESS = "NMT_TEST_COPIES"

# Code of ``python -c`` and the like is left to Python.
SHIM = f"""#!{sys.executable} -IS
import json, os, socket, sys
program, *words = sys.argv
if os.path.basename(program) in {PYTHONS}:
    while words[:1] == ["-u"]:  # of torchrun
        del words[0]
    if words[:1] != ["-m"] and not (words and words[0].endswith(".py")):
        os.execv({sys.executable!r}, [{sys.executable!r}, *words])
channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
channel.connect(os.environ["{ADDRESS}"])
report, told = os.pipe()
request = json.dumps([os.getcwd(), dict(os.environ), [program, *words]])
socket.send_fds(channel, [request.encode()], [0, 1, 2, told])
os.close(told)
number, status = os.read(report, {REPORT}), os.read(report, {REPORT})
os._exit(int(status or 1) % 256)
"""


class Shims:
    """Programs in a folder of their own, and the environment in which a shell finds them."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in (*MODULES, *PYTHONS):
            self._write(name, SHIM)
        for name in ("pip", "pip3"):  # no test changes the environment that it runs in
            self._write(name, f"#!/bin/sh\necho '{name} is not for tests' >&2\nexit 1\n")
        address = folder / "socket"
        added = {
            "PATH": os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]),
            "PYTHON_EXEC": str(self.programs / "python"),  # what torchrun starts
            "PYTHON": "python",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
            ADDRESS: str(address),
        }
        self.environment = {**os.environ, **added}
        self._original = original_of(HEAVY, tuple(sorted(added.items())), None).holding(*WARM)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(address))
        listener.listen(64)
        threading.Thread(target=self._relay, args=[listener], daemon=True).start()

    def _write(self, name: str, program: str) -> None:
        (self.programs / name).write_text(program, encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def _relay(self, listener: socket.socket) -> None:
        while True:
            channel, _ = listener.accept()
            with channel:
                message, descriptors, _, _ = socket.recv_fds(channel, 2**20, 4)
            if message:
                self._original.ask(descriptors, **self._request(*json.loads(message)))
            for descriptor in descriptors:
                os.close(descriptor)

    def _request(self, folder: str, environment: dict[str, str], words: list[str]) -> dict[str, Any]:
        program, *arguments = words
        runs = MODULES.get(Path(program).name)
        if runs is None:
            if arguments[0] == "-m":
                del arguments[0]
            runs, *arguments = arguments
            runs = MODULES.get(runs, runs)  # python -m nmt
            program = runs if runs.endswith(".py") else program
        return {
            "runs": packed(runs),
            "before": "",
            "cwd": packed(folder),
            "environment": dict.fromkeys(self.environment)
            | {name: packed(value) for name, value in environment.items()},
            "words": [packed(word) for word in (program, *arguments)],
        }
