"""Serve the page of runs on loopback, and new events to its script. The server keeps no event in memory.

A page tells how far it has read each log, so a closed page costs nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nmt.errors import NMTError
from nmt.pages.names import short_names
from nmt.reporting.html_report import page_of_record
from nmt.reporting.live_page import ADDRESS
from nmt.reporting.run_record import RunRecord, parsed
from nmt.reporting.runs_page import LOG, ListedRun, events_for_script, find_runs, page_data, runs_page
from nmt.watching.machine import process_of, usage

_MOST_BYTES = 2**20  # of all logs in one answer
_POSITION = re.compile(r"(\d{1,20})-(\d{1,15})")  # number of the file, offset in it
_FAREWELL = 4.0  # seconds after the end of training in which open pages fetch the last events
_POLL = 1.0  # seconds between looks at the process that started this one
# Other names are those of sites that gave them this address (DNS rebinding).
_HOST = re.compile(rf"({re.escape(ADDRESS)}|localhost)(:\d+)?")
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def serve(options: str) -> None:
    """Serve the page in this process. ``options``: JSON of ``nmt.reporting.live_page.command``."""
    facts = json.loads(options)
    listening = socket.socket(fileno=facts["socket"])
    server = PageServer(listening, list(map(Path, facts["paths"])), facts["parent"], **facts["settings"])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.end())
    server.serve()


class PageServer(ThreadingHTTPServer):
    """Serve the page of run folders and folders of sweeps until ``end``, or until the process ``parent`` has ended.

    ``settings``: of the page, as of ``page_data``.
    """

    daemon_threads = True

    def __init__(self, listening: socket.socket, paths: list[Path], parent: int | None = None, **settings: Any) -> None:
        super().__init__(listening.getsockname(), _PageRequest, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.paths, self.settings = paths, settings
        self._parent, self._until, self._last_request = parent, float("inf"), 0.0

    def serve(self) -> None:
        self.timeout = _POLL
        with self:
            while not self._is_over():
                self.handle_request()

    def end(self) -> None:
        """End. If training started this process, open pages have time to fetch the last events."""
        self._until = time.monotonic() + (0.0 if self._parent is None else _FAREWELL)

    def _is_over(self) -> bool:
        if self._parent not in (None, os.getppid()) and self._until == float("inf"):
            self.end()
        now = time.monotonic()
        return now >= self._until or (self._until < float("inf") and now - self._last_request > _FAREWELL)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a page that closes its connection during an answer."""

    def runs(self) -> list[ListedRun]:
        self._last_request = time.monotonic()
        return find_runs(self.paths)


class _PageRequest(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"  # a page keeps its connection
    timeout = 30.0  # seconds, then the connection of a closed page ends

    def do_GET(self) -> None:
        if not _HOST.fullmatch(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        address = urlsplit(self.path)
        values = {key: texts[-1] for key, texts in parse_qs(address.query).items()}
        try:
            runs = self.server.runs()
            runs = [dict(enumerate(runs))[int(values["number"])]] if "number" in values else runs
            answer = {"/": self._page, "/run": self._page, "/events": self._events}[address.path]
            kind, content = answer(runs, values)
        except (NMTError, ValueError, LookupError):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        sent = content.encode("utf-8", "replace")
        self.send_response(HTTPStatus.OK)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(sent)), **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def _page(self, runs: Sequence[ListedRun], values: dict[str, str]) -> tuple[str, str]:
        single = "number" in values or (len(runs) == 1 and not runs[0].job)
        title = runs[0].name if single else ", ".join(short_names(self.server.paths))
        data = page_data(title, runs, single=single, live=True, number=values.get("number"), **self.server.settings)
        return "text/html; charset=utf-8", page_of_record(_head(runs[0].folder), data) if single else runs_page(data)

    def _events(self, runs: Sequence[ListedRun], values: dict[str, str]) -> tuple[str, str]:
        positions = [*values.get("after", "").split(","), *[""] * len(runs)]
        entries, left = list[dict[str, Any]](), _MOST_BYTES
        for run, place in zip(runs, positions):
            entries.append({**run.facts(), **news(run.folder, place, left)})
            left -= entries[-1]["bytes"]
        state, number = process_of(runs[0].folder)
        use = usage(number) if state == "alive" and len(runs) == 1 else None
        return "application/json", json.dumps({"runs": entries, "machine": use}, ensure_ascii=False, allow_nan=False)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a page asks every two seconds."""


def news(folder: Path, position: str, most: int = _MOST_BYTES) -> dict[str, Any]:
    """Return the events of a log after a position, the new position, and whether the process of the run lives.

    ``anew``: the log was replaced, as when a run resumes; the events are those from its beginning. ``more``: the answer
    ends after ``most`` bytes.
    """
    entry: dict[str, Any] = {"events": [], "anew": True, "position": "", "bytes": 0, "more": False, "age": 0.0}
    entry["process"], _ = process_of(folder)
    with contextlib.suppress(OSError), open(folder / LOG, "rb") as file:
        facts, known = os.fstat(file.fileno()), _POSITION.fullmatch(position)
        same = known is not None and int(known[1]) == facts.st_ino and int(known[2]) <= facts.st_size
        offset = file.seek(int(known[2]) if known is not None and same else 0)
        text = file.read(most)
        size = text.rfind(b"\n") + 1  # the rest is a line that is being written, or that comes next time
        size = size or (len(text) if len(text) == _MOST_BYTES else 0)  # no event is that long
        entry["events"] = events_for_script(parsed(text[:size].decode("utf-8", "replace").split("\n")))
        entry |= {"anew": not same, "position": f"{facts.st_ino}-{offset + size}", "bytes": size}
        entry |= {"more": len(text) == most, "age": max(0.0, round(time.time() - facts.st_mtime, 1))}
    return entry


def _head(folder: Path) -> RunRecord:
    """Return the record of a run with its starts only: a long log would not fit into the memory of this process."""
    starts = list[dict[str, Any]]()
    with contextlib.suppress(OSError), open(folder / LOG, encoding="utf-8", errors="replace") as file:
        starts += parsed(line for line in file if '"start"' in line[:30])
    return RunRecord.of_events(folder, starts)
