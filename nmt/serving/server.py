"""The listening socket, the server behind it, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from nmt.errors import Interrupted, OutputError, quantity
from nmt.interruptions import handled
from nmt.serving.admission import MOST_HEADER_BYTES, ApiKeys
from nmt.serving.app import Service
from nmt.serving.config import ServeConfig
from nmt.serving.dispatching import Dispatcher
from nmt.serving.metrics import Metrics
from nmt.serving.models import Models, names_of
from nmt.serving.workers import on_cpu, start_worker, start_workers
from nmt.threads import count_threads

logger = logging.getLogger("nmt.serving")

_BACKLOG = 2048
_HEADERS_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def serve(config: ServeConfig) -> None:
    """Listen until SIGTERM or Ctrl-C; then finish what was accepted."""
    names_of(config.path)
    keys = None if config.api_keys is None else ApiKeys.read(Path(config.api_keys))
    with _bound(config.host, config.port) as listener:  # its errors are reported before a model is loaded
        count = config.workers or (count_threads(config.device.threads) if on_cpu(config) else 1)
        workers, loaded, models = start_workers(config, count)
        for model in models:
            of = "" if model.languages else "from "
            logger.info("model %s translates %s%s: %s", model.name, of, model.directions, model.search)

        async def run() -> int:
            metrics = Metrics()
            dispatcher = Dispatcher(config, workers, lambda: start_worker(config, loaded), metrics)
            service = Service(config, Models(models), dispatcher, metrics, keys)
            try:
                await _Server(service).serve([listener])
            finally:
                dispatcher.close()
            return service.active

        unfinished = asyncio.run(run())
    if unfinished:
        raise Interrupted(
            f"{quantity(unfinished, 'request')} not finished within {quantity(config.grace, 'second')} (--grace)"
        )
    logger.info("stopped; all accepted requests were answered")


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that does not listen yet: clients do not wait while models are loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise OutputError(f"--host {host} is not an address of this machine: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OutputError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port or --host"
        ) from None
    return listener


class _Server(uvicorn.Server):
    """The server of uvicorn, with our signals and log. It disconnects clients that send no request."""

    def __init__(self, service: Service) -> None:
        config = uvicorn.Config(
            service,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=max(5, int(service.config.read_timeout)),
            timeout_graceful_shutdown=max(1, round(service.config.grace)),
        )
        config.load()
        config.http_protocol_class = _impatient(config.http_protocol_class, service.config.read_timeout)
        super().__init__(config)
        self._service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with handled([signal.SIGTERM, signal.SIGINT], self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._service.stopping = True
        self.force_exit = self.force_exit or self.should_exit  # a second signal does not wait
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port, *_ = listener.getsockname()
            logger.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("stopping: %s", self._service.load)
        await super().shutdown(sockets)


def _impatient(protocol: Any, seconds: float) -> Any:
    """Return a uvicorn protocol that disconnects a client if its headers take more than ``seconds``, from the first byte or
    from the connection, or exceed ``MOST_HEADER_BYTES``. The body has separate limits."""

    class Impatient(protocol):  # type: ignore[misc]
        _deadline: asyncio.TimerHandle | None = None
        _unread = 0  # bytes of a request whose headers have not ended

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            self._unread = self._unread + len(data) if self.cycle is before and self._in_headers else 0
            if self._unread > MOST_HEADER_BYTES:
                self.transport.write(_HEADERS_TOO_LARGE)
                self.transport.close()
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._deadline is not None:
                self._deadline.cancel()

        @property
        def _in_headers(self) -> bool:
            return self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)

        @property
        def _answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _expect(self) -> None:
            if self._answering and self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            elif not self._answering and self._deadline is None:
                self._deadline = self.loop.call_later(seconds, self._leave)

        def _leave(self) -> None:
            self._deadline = None
            if not self._answering:
                self.transport.close()

    return Impatient
