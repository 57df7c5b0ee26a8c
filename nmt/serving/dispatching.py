"""Send waiting lines to workers, and translations back to their requests.

A worker that is free gets a window of lines. If none is free, a window of cheap lines interrupts the worker whose current
window has run longest, so that no request within the limits keeps others waiting for long. All of this runs in the thread
of the event loop, so no locks are needed, and a worker that has ended can be replaced by another copy of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from nmt.errors import NMTError, quantity
from nmt.serving.config import ServeConfig
from nmt.serving.costs import window_cost
from nmt.serving.desk import Abandon
from nmt.serving.metrics import Metrics
from nmt.serving.refusals import Refused, busy
from nmt.serving.rendering import Rendered
from nmt.serving.request_forms import TranslationRequest
from nmt.serving.translating import Window
from nmt.serving.waiting import Item, QueuedRequest, Waiting
from nmt.serving.workers import models_of
from nmt.workers import WorkerEnded, WorkerProcess

logger = logging.getLogger("nmt.serving")

_PATIENCE = 5  # maximum time that lines wait for others, as a multiple of ``gather_ms``
_RETRY_SECONDS = 1.0  # seconds until another attempt to start a process
_UNDISTURBED = 0.25  # seconds that a window runs at least before another one interrupts it
_CHEAP = 0.25  # largest cost of a window that interrupts, as a share of the interrupted one, so nesting is bounded
# Largest cost of such a window. Its text has at most 64 KB, which a socket holds: the server never waits for a busy worker.
_MOST_INTERRUPTING = 16_384.0


@dataclass(eq=False)
class RunningWindow:
    """A window that a worker translates, and its lines without an outcome, by position."""

    number: int
    items: dict[int, Item]
    start: float  # when it began to run, or resumed
    undisturbed: float = _UNDISTURBED  # seconds that it then runs before another one may interrupt it

    @property
    def cost(self) -> float:
        return sum(item.cost for item in self.items.values())

    @property
    def interruptible(self) -> float:
        """Time from which another window may interrupt it."""
        return self.start + self.undisturbed


class Dispatcher:
    """Distribute the lines of requests to workers, and their outcomes to requests."""

    def __init__(
        self,
        config: ServeConfig,
        workers: list[WorkerProcess],
        start_worker: Callable[[], WorkerProcess],
        metrics: Metrics,
    ) -> None:
        """``start_worker`` starts one more worker."""
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._start_worker = start_worker
        self._metrics = metrics
        self._waiting = Waiting()
        self._jobs: dict[QueuedRequest, float] = {}  # and the time of its arrival
        # The windows of each worker; each interrupts the one before.
        self._windows: dict[WorkerProcess, list[RunningWindow]] = {worker: [] for worker in workers}
        self._free = list(workers)
        self._starting: set[WorkerProcess] = set()
        self._restarts: set[asyncio.TimerHandle] = set()  # one for each process that could not be started
        self._tried: set[tuple[int, int]] = set()  # lines in whose window a worker has ended: by job and index
        self._timer: asyncio.TimerHandle | None = None  # for free workers
        self._interruption: asyncio.TimerHandle | None = None
        self._first = self._last = 0.0  # arrival of the first and the last waiting line
        self._numbers = itertools.count()
        for worker in workers:
            self._listen(worker)

    def _listen(self, worker: WorkerProcess) -> None:
        """Handle the messages and the end of a worker, whether it is busy or not."""
        self._loop.add_reader(worker.pipe.fileno(), self._readable, worker)

    @property
    def waiting_lines(self) -> int:
        return self._waiting.lines

    @property
    def workers(self) -> int:
        return len(self._windows)

    @property
    def busy_workers(self) -> int:
        return sum(map(bool, self._windows.values()))

    @property
    def oldest_request_seconds(self) -> float:
        """Age of the oldest request that waits for translations; 0 if none waits."""
        now = self._loop.time()
        return now - next(iter(self._jobs.values()), now)

    def close(self) -> None:
        for timer in filter(None, (self._timer, self._interruption, *self._restarts)):
            timer.cancel()
        for worker in (*self._windows, *self._starting):
            self._loop.remove_reader(worker.pipe.fileno())
            worker.close()

    async def translate(self, request: TranslationRequest, disconnection: asyncio.Future[object]) -> list[Rendered]:
        """Return the translations of each line. The ``disconnection`` of the client drops its lines (``CancelledError``)."""
        self._require_room(len(request.lines))
        job = QueuedRequest(request, self._loop.create_future(), self._config.max_answer_bytes)
        disconnection.add_done_callback(lambda future: job.translations.cancel())
        self._waiting.add(job)
        self._last = self._jobs[job] = self._loop.time()
        self._first = self._first or self._last
        self._dispatch()
        try:
            return await asyncio.wait_for(job.translations, self._config.timeout)
        except asyncio.TimeoutError:
            limit = quantity(self._config.timeout, "second")
            raise Refused(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"the request was not translated within {limit}; send fewer lines, or try again later",
            ) from None
        finally:
            self._forget_job(job)

    def _require_room(self, lines: int) -> None:
        """Raise ``Refused`` if the queue is full and the request exceeds an equal share of it, so large requests do not
        block small ones."""
        waiting, limit = self._waiting.lines, self._config.max_queue
        if waiting + lines > limit and lines > limit // (self._waiting.jobs + 1):
            raise busy(f"the queue is full ({quantity(waiting, 'line')}); try again in a moment")

    def _forget_job(self, job: QueuedRequest) -> None:
        """Drop the waiting lines of a request that ends, and abandon its lines in workers."""
        del self._jobs[job]
        self._metrics.dropped_lines += self._waiting.drop(job)
        for worker, windows in self._windows.items():
            for running in windows:
                places = tuple(place for place, item in running.items.items() if item.job is job)
                if places:
                    with contextlib.suppress(WorkerEnded):  # its end is noticed elsewhere
                        worker.send(Abandon(running.number, places))

    def _dispatch(self) -> None:
        """Send full windows to free workers, and schedule the others."""
        while self._free and self._waiting.lines >= self._config.buffer_size * len(self._free):
            self._send_to_free()
        if self._free and self._waiting.lines and self._timer is None:
            delay = self._config.gather_ms / 1000
            self._timer = self._loop.call_later(delay, self._gathered)
        self._look_for_interruptions(self._loop.time())

    def _gathered(self) -> None:
        """Send waiting lines to free workers if no line has arrived for a moment; else wait a little longer."""
        self._timer = None
        now, pause = self._loop.time(), self._config.gather_ms / 1000
        if now - self._last < pause and now - self._first < _PATIENCE * pause:
            self._timer = self._loop.call_later(self._last + pause - now, self._gathered)
            return
        self._first = 0.0
        while self._free and self._waiting.lines:
            self._send_to_free()
        self._look_for_interruptions(now)

    def _look_for_interruptions(self, after: float, *, tried: bool = False) -> None:
        """Schedule an interruption if lines wait and no worker is free. ``tried``: workers that may be interrupted by the
        time ``after`` were already considered."""
        if self._free or not self._waiting.lines or self._interruption is not None:
            return
        times = [windows[-1].interruptible for windows in self._windows.values() if windows]
        times = [time for time in times if time > after or not tried]
        if times:
            delay = max(min(times) - after, self._config.gather_ms / 1000)
            self._interruption = self._loop.call_later(delay, self._interrupt)

    def _interrupt(self) -> None:
        """Interrupt workers whose current window has run for long, with windows of cheap lines."""
        self._interruption = None
        now = self._loop.time()
        ready = [worker for worker, windows in self._windows.items() if windows and windows[-1].interruptible <= now]
        for worker in sorted(ready, key=lambda worker: self._windows[worker][-1].interruptible):
            if self._free:
                break
            budget = min(_CHEAP * self._windows[worker][-1].cost, _MOST_INTERRUPTING)
            items = self._waiting.take(self._config.buffer_size, 1, budget, strictly=True)
            if items:
                self._metrics.interruptions += 1
                self._send(worker, items)
        self._look_for_interruptions(now, tried=True)

    def _send_to_free(self) -> None:
        size = self._config.buffer_size
        items = self._waiting.take(size, len(self._free), window_cost(size))
        self._send(self._free.pop(0), items)

    def _send(self, worker: WorkerProcess, items: list[Item]) -> None:
        request = items[0].job.request
        lines = [item.job.request.lines[item.index] for item in items]
        forms = [item.job.form for item in items]
        running = RunningWindow(next(self._numbers), dict(enumerate(items)), self._loop.time())
        numbers = [item.index for item in items]
        window = Window(running.number, request.model.name, request.options, request.alignment, lines, numbers, forms)
        self._metrics.window_lines.add(len(items))
        try:
            worker.send(window)
        except WorkerEnded:  # it ended before this window, which is therefore not the reason
            self._waiting.retry(items)
            self._ended(worker)
        else:
            self._windows[worker].append(running)

    def _readable(self, worker: WorkerProcess) -> None:
        """Handle a message of a worker: outcomes, readiness for its first window, or its end."""
        if worker in self._starting:
            self._started(worker)
            return
        try:
            message = worker.receive()
            running = next(window for window in self._windows[worker] if window.number == message.number)
        except Exception:  # the worker has ended, or sent a message that cannot be read, which counts as its end
            self._ended(worker)
            self._dispatch()
            return
        for place, outcome in message.outcomes:
            item = running.items.pop(place)
            item.job.settle(item.index, outcome)
            if isinstance(outcome, Rendered):
                self._metrics.lines[item.job.request.model.name] += 1
        if message.last:
            self._finished(worker, running)
        self._dispatch()

    def _finished(self, worker: WorkerProcess, running: RunningWindow) -> None:
        """Free the worker, or let it resume the interrupted window for at least as long as the interruption took."""
        self._metrics.abandoned_lines += len(running.items)
        windows, now = self._windows[worker], self._loop.time()
        windows.remove(running)
        if windows:
            windows[-1].undisturbed = max(_UNDISTURBED, now - running.start)
            windows[-1].start = now
        else:
            self._free.append(worker)

    def _ended(self, worker: WorkerProcess) -> None:
        """Replace a worker that has ended. Its lines are tried once more, one by one. A line is refused if a worker ends a
        second time while its window runs."""
        self._loop.remove_reader(worker.pipe.fileno())
        windows = self._windows.pop(worker)
        if worker in self._free:
            self._free.remove(worker)
        self._metrics.ended_workers += 1
        logger.error("a worker process ended (%s); starting another one", worker.ending())
        worker.close()
        for running in windows:
            self._waiting.retry([*self._retriable(running, ran=running is windows[-1])])
        self._start()

    def _retriable(self, running: RunningWindow, *, ran: bool) -> Iterator[Item]:
        for item in running.items.values():
            key = (id(item.job), item.index)
            if item.job.translations.done():
                continue
            if ran and key in self._tried:
                sentence = "a worker process ended twice on this line, which may need more memory than is available"
                item.job.settle(item.index, Refused(HTTPStatus.INTERNAL_SERVER_ERROR, sentence))
                continue
            if ran:
                self._tried.add(key)
                item.job.translations.add_done_callback(functools.partial(self._forget, key))
            yield item

    def _forget(self, key: tuple[int, int], translations: asyncio.Future[list[Rendered]]) -> None:
        self._tried.discard(key)

    def _start(self) -> None:
        """Start one more worker, which may take a while to load."""
        try:
            worker = self._start_worker()
        except OSError as error:  # no memory, or no free process
            self._start_later(f"cannot start a worker process ({error})")
            return
        self._starting.add(worker)
        self._listen(worker)

    def _start_later(self, reason: str) -> None:
        logger.error("%s; retrying in %g seconds", reason, _RETRY_SECONDS)

        def start() -> None:
            self._restarts.discard(timer)
            self._start()

        timer = self._loop.call_later(_RETRY_SECONDS, start)
        self._restarts.add(timer)

    def _started(self, worker: WorkerProcess) -> None:
        self._starting.discard(worker)
        try:
            models_of(worker)
        except NMTError as error:
            self._loop.remove_reader(worker.pipe.fileno())
            worker.close()
            self._start_later(str(error))
            return
        self._windows[worker] = []
        self._free.append(worker)
        self._dispatch()
