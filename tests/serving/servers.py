"""Servers for tests: each the real command in a process of its own, asked over the loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.commands import Copy, start_copy

PATIENCE = 30.0  # seconds that a test waits at most for what should come at once


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """A running server; ``log``: its lines so far."""

    process: Copy
    port: int = 0
    log: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), found)
        finally:
            connection.close()

    def post(self, path: str, tree: object) -> Answer:
        return self.ask("POST", path, json.dumps(tree).encode(), {"Content-Type": "application/json"})

    def translate(self, *texts: str, **more: object) -> list[str]:
        answer = self.post("/v1/translate", {"text": list(texts), "source": "de", **more})
        assert answer.status == 200, answer
        return [one["text"] for one in answer.json["translations"]]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def metric(self, name: str) -> float:
        text = self.ask("GET", "/metrics").body.decode()
        (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", text, flags=re.MULTILINE)
        return float(value)

    def workers(self) -> list[int]:
        """The processes that translate."""
        return [
            int(one) for one in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def _read(self) -> None:
        for line in self.process.stderr:
            self.log.append(line.decode().rstrip("\n"))


@contextlib.contextmanager
def running(*arguments: str | Path, before: str = "", device: str = "cpu") -> Iterator[Server]:
    """A server with these arguments, on a free port; killed at the end if it still runs. ``before``: Python that it runs
    first."""
    process = start_copy("serve", "--port", "0", "--device", device, *arguments, before=before)
    server = Server(process)
    thread = threading.Thread(target=server._read, daemon=True)
    thread.start()
    try:
        until(lambda: process.poll() is not None or any("listening on" in line for line in server.log))
        listening = [line for line in server.log if "listening on" in line]
        assert listening, "\n".join(server.log)
        server.port = int(listening[0].rpartition(":")[2])
        yield server
    finally:
        if process.poll() is None:
            for worker in server.workers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
        thread.join(PATIENCE)


def until(true: Callable[[], bool], what: str = "what should come") -> None:
    limit = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < limit, f"{what} did not come"
        time.sleep(0.01)
