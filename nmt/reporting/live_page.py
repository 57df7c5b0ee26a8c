"""Start the process that serves the live page of runs (``nmt/watching``)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.reporting.callbacks import Callback, RunEvent

logger = logging.getLogger("nmt.training")

ADDRESS = "127.0.0.1"
_PORTS = 20  # that are tried, before the system chooses one


def listener(port: int) -> socket.socket:
    """Return a socket that listens on loopback: at ``port``, or, if it is in use, at the next free one."""
    for number in [*range(port, min(port + _PORTS, 2**16)), 0] if port else [0]:
        with contextlib.suppress(OSError):
            return socket.create_server((ADDRESS, number))
    raise OSError(f"no port of {ADDRESS} is free")


def address_of(listening: socket.socket) -> str:
    return f"http://{ADDRESS}:{listening.getsockname()[1]}/"


def command(listening: socket.socket, paths: Sequence[Path], parent: int | None = None, **settings: Any) -> list[str]:
    """Return the command of the process, which inherits the socket and ends with the process ``parent``.

    It finds the modules that this process finds: with ``-m``, a file of the working directory could replace one.
    ``settings``: of the page, as of ``page_data``.
    """
    program = f"import sys; sys.path[:] = {sys.path!r}; from nmt.watching.server import serve; serve(sys.argv[1])"
    facts = {"socket": listening.fileno(), "parent": parent, "paths": list(map(str, paths)), "settings": settings}
    return [sys.executable, "-c", program, json.dumps(facts)]


class LivePage(Callback):
    """Serve the page of the run while it trains, in another process. It ends soon after the run, or with this process."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def on_start(self, event: RunEvent) -> None:
        with listener(self._port) as listening:
            self._process = subprocess.Popen(
                command(listening, [event.folder], os.getpid()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C stops the training, which ends the page
            )
            logger.info("the live page of the run: %s", address_of(listening))

    def on_end(self, event: RunEvent) -> None:
        if self._process is not None:
            self._process.terminate()
