"""Waiting lines go to free processes, and translations back to the requests. All of it in one thread, that of the event
loop, so nothing is locked, and a process that has ended can be replaced by another copy."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from http import HTTPStatus

from nmt.config.serving import ServeConfig
from nmt.errors import NMTError
from nmt.serving.asking import Asked
from nmt.serving.metrics import Metrics
from nmt.serving.refusals import Refused, busy
from nmt.serving.waiting import Item, Job, Waiting
from nmt.serving.workers import Window, Worker
from nmt.translation import Translation

logger = logging.getLogger("nmt.serving")

_PATIENCE = 5  # times ``gather_ms`` that lines wait at most for others
_AGAIN = 1.0  # seconds after which another process is started where one could not


class Dispatcher:
    """Between the requests and the processes."""

    def __init__(
        self, config: ServeConfig, workers: list[Worker], another: Callable[[], Worker], metrics: Metrics
    ) -> None:
        """``another``: starts one more process."""
        self._config = config
        self._another = another
        self._metrics = metrics
        self._waiting = Waiting()
        self._free = list(workers)
        self._busy: dict[Worker, list[Item]] = {}
        self._starting: set[Worker] = set()
        self._restart: asyncio.TimerHandle | None = None
        self._tried: set[tuple[int, int]] = set()  # lines in whose window a process has ended: by job and index
        self._timer: asyncio.TimerHandle | None = None
        self._first = self._last = 0.0  # when lines came that wait

    @property
    def waiting_lines(self) -> int:
        return self._waiting.lines

    @property
    def workers(self) -> int:
        return len(self._free) + len(self._busy)

    @property
    def busy_workers(self) -> int:
        return len(self._busy)

    def close(self) -> None:
        for timer in filter(None, (self._timer, self._restart)):
            timer.cancel()
        for worker in (*self._busy, *self._starting):
            asyncio.get_running_loop().remove_reader(worker.connection.fileno())
        for worker in (*self._free, *self._busy, *self._starting):
            worker.close()

    async def translate(self, asked: Asked, gone: asyncio.Future[object]) -> list[Translation]:
        """The translation of each line. When the client is ``gone``, its lines are dropped (``CancelledError``)."""
        if self._waiting.lines + len(asked.lines) > self._config.max_queue:
            raise busy(f"{self._waiting.lines:,} lines wait already; try again in a moment")
        loop = asyncio.get_running_loop()
        job = Job(asked, loop.create_future())
        gone.add_done_callback(lambda future: job.done.cancel())
        self._waiting.add(job)
        self._last = loop.time()
        self._first = self._first or self._last
        self._look()
        try:
            return await asyncio.wait_for(job.done, self._config.timeout)
        except asyncio.TimeoutError:
            seconds = f"{self._config.timeout:g}"
            raise Refused(HTTPStatus.GATEWAY_TIMEOUT, f"not translated within {seconds} seconds") from None
        finally:
            self._metrics.dropped_lines += self._waiting.drop(job)

    def _look(self) -> None:
        """Give out windows that are full, and see to it that the others are given out soon."""
        while self._free and self._waiting.lines >= self._config.buffer_size * len(self._free):
            self._give()
        if self._free and self._waiting.lines and self._timer is None:
            delay = self._config.gather_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(delay, self._gathered)

    def _gathered(self) -> None:
        """Nothing came for a moment: whoever is free begins. Else a little later."""
        self._timer = None
        now, pause = asyncio.get_running_loop().time(), self._config.gather_ms / 1000
        if now - self._last < pause and now - self._first < _PATIENCE * pause:
            self._timer = asyncio.get_running_loop().call_later(self._last + pause - now, self._gathered)
            return
        self._first = 0.0
        while self._free and self._waiting.lines:
            self._give()

    def _give(self) -> None:
        """A window to a free process."""
        items = self._waiting.take(self._config.buffer_size, len(self._free))
        asked = items[0].job.asked
        lines = [item.job.asked.lines[item.index] for item in items]
        window = Window(asked.model.name, asked.options, asked.alignment, lines, [item.index for item in items])
        worker = self._free.pop(0)
        self._busy[worker] = items
        self._metrics.window_lines.add(len(items))
        asyncio.get_running_loop().add_reader(worker.connection.fileno(), self._ready, worker)
        try:
            worker.give(window)
        except OSError:  # it has ended while it had nothing to do
            self._ended(worker)

    def _ready(self, worker: Worker) -> None:
        """A window is translated, or the process has ended."""
        try:
            outcomes = worker.outcomes()
        except Exception:  # an end, or what nobody can read, which is one as well
            self._ended(worker)
            return
        asyncio.get_running_loop().remove_reader(worker.connection.fileno())
        items = self._busy.pop(worker)
        self._free.append(worker)
        for item, outcome in zip(items, outcomes):
            item.job.settle(item.index, outcome)
            if isinstance(outcome, Translation):
                self._metrics.lines[item.job.asked.model.name] += 1
        self._look()

    def _ended(self, worker: Worker) -> None:
        """Another process takes its place. What it had is tried once more, line by line; a line that is the reason a second
        time is given up."""
        asyncio.get_running_loop().remove_reader(worker.connection.fileno())
        items = self._busy.pop(worker)
        self._metrics.ended_workers += 1
        logger.error("a process that translates has ended (%s); another one takes its place", worker.end())
        worker.close()
        again = []
        for item in items:
            key = (id(item.job), item.index)
            if item.job.done.done():
                continue
            if key in self._tried:
                sentence = (
                    "the process that translates ended twice over this line; it may need more memory than there is"
                )
                item.job.settle(item.index, Refused(HTTPStatus.INTERNAL_SERVER_ERROR, sentence))
            else:
                again.append(item)
                self._tried.add(key)
                item.job.done.add_done_callback(functools.partial(self._forget, key))
        self._waiting.add_again(again)
        self._start()
        self._look()

    def _forget(self, key: tuple[int, int], done: asyncio.Future[list[Translation]]) -> None:
        self._tried.discard(key)

    def _start(self) -> None:
        """One more process, which may load for a while."""
        worker = self._another()
        self._starting.add(worker)
        asyncio.get_running_loop().add_reader(worker.connection.fileno(), self._started, worker)

    def _started(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker.connection.fileno())
        self._starting.discard(worker)
        try:
            worker.models()
        except NMTError as error:
            logger.error("%s; it is tried again in %g seconds", error, _AGAIN)
            worker.close()
            self._restart = loop.call_later(_AGAIN, self._start)
            return
        self._free.append(worker)
        self._look()
