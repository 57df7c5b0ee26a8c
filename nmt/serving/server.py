"""The listening socket, the server behind it, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from nmt.config.serving import ServeConfig
from nmt.devices import count_threads, device_named, kind_of
from nmt.errors import Interrupted, OutputError
from nmt.interruptions import handled
from nmt.serving.app import Service
from nmt.serving.dispatching import Dispatcher
from nmt.serving.metrics import Metrics
from nmt.serving.models import Models, names_of
from nmt.serving.workers import Worker, started

logger = logging.getLogger("nmt.serving")

_BACKLOG = 2048


def serve(config: ServeConfig) -> None:
    """Listen until SIGTERM or Ctrl-C; then finish what was accepted."""
    names_of(config.path)
    with _bound(config.host, config.port) as listener:  # what is wrong with it is known before a model is loaded
        on_cpu = kind_of(device_named(config.device.name)) == "cpu"
        count = config.workers or (count_threads(config.device.threads) if on_cpu else 1)
        workers, loaded, models = started(config, count)
        for model in models:
            logger.info("model %s translates from %s to %s: %s", model.name, model.source, model.target, model.search)

        async def run() -> int:
            metrics = Metrics()
            dispatcher = Dispatcher(config, workers, lambda: Worker(config, loaded), metrics)
            service = Service(config, Models(models), dispatcher, metrics)
            try:
                await _Server(service).serve([listener])
            finally:
                dispatcher.close()
            return service.active

        unfinished = asyncio.run(run())
    if unfinished:
        raise Interrupted(f"{unfinished} requests were not finished within {config.grace:g} seconds (--grace)")
    logger.info("stopped; every request that was accepted has been answered")


def _bound(host: str, port: int) -> socket.socket:
    """A socket that does not listen yet: nobody is kept waiting while models are loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise OutputError(f"--host {host} is no address of this machine: {error.strerror}") from None
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
    """uvicorn's, with our signals, our log, and no endless patience with those who connect and say nothing."""

    def __init__(self, service: Service) -> None:
        config = uvicorn.Config(
            service.application(),
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
        logger.info("stopping: %d requests are being answered", self._service.active)
        await super().shutdown(sockets)


def _impatient(protocol: Any, seconds: float) -> Any:
    """A protocol of uvicorn that leaves a client whose request does not begin within so many seconds of its first byte, or
    of the connection. The body has a limit of its own."""

    class Impatient(protocol):  # type: ignore[misc]
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._deadline is not None:
                self._deadline.cancel()

        def _expect(self) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            if answering and self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            elif not answering and self._deadline is None:
                self._deadline = self.loop.call_later(seconds, self._leave)

        def _leave(self) -> None:
            self._deadline = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Impatient
