"""Worker processes, and pools of them that do a stream of tasks.

Small products do not divide well among threads: two processes of one thread each translate far more than one of two. Where
processes can be copied (fork), a worker is a copy of this process, so a model that was loaded before is in memory once.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from nmt import interruptions

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 2  # tasks of a worker at a time: it begins the next one before this process has read the last result
_FOR_THIS_PROCESS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # sent to the whole group; this process decides


def possible() -> bool:
    """Whether processes can be copied here: not on Windows, and on macOS not safely."""
    return hasattr(os, "fork") and sys.platform != "darwin"


class WorkerEnded(Exception):
    """A worker process has ended. ``str`` says how: ``SIGKILL`` or ``status 1``."""

    def __init__(self, worker: WorkerProcess) -> None:
        super().__init__()
        self._worker = worker

    def __str__(self) -> str:
        return self._worker.ending()


class WorkerProcess:
    """A process that serves this one through a pipe. It ends with this process, even if this process is killed."""

    def __init__(self, serve: Callable[..., None], *arguments: Any, copied: bool) -> None:
        """The process calls ``serve(pipe, *arguments)``, and ends if that meets a closed pipe.

        ``copied``: the process is a copy of this one (fork); otherwise it starts anew (spawn) and unpickles the arguments.
        """
        context: Any = multiprocessing.get_context("fork" if copied else "spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self._process: Any = context.Process(target=_run, args=(serve, theirs, *arguments), daemon=True)
        _close_workers_at_exit()
        _workers.add(self)
        try:
            with interruptions.held():
                self._process.start()
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def send(self, message: object) -> None:
        """Send a message. Raises ``WorkerEnded``."""
        try:
            self.pipe.send_bytes(pickle.dumps(message))
        except OSError:
            raise WorkerEnded(self) from None

    def receive(self) -> Any:
        """Wait for the next message. Raises ``WorkerEnded``."""
        try:
            return pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise WorkerEnded(self) from None

    def result(self) -> Any:
        """Wait for the result of the oldest task of ``do_tasks``, or raise its error. Raises ``WorkerEnded``."""
        good, result = self.receive()
        if not good:
            raise result
        return result

    def ending(self) -> str:
        """How a process that has ended did so: ``SIGKILL`` or ``status 1``."""
        self._process.join(timeout=10)
        code = self._process.exitcode
        return f"status {code}" if code is None or code >= 0 else signal.Signals(-code).name

    def close(self) -> None:
        """End the process at once: a worker has nothing to clean up."""
        _workers.discard(self)
        self.pipe.close()
        if self._process.pid is not None:  # it has started
            self._process.kill()
            self._process.join()


_workers = set[WorkerProcess]()  # of this process


@functools.cache
def _close_workers_at_exit() -> None:
    """Register the ends of all workers. The first worker does it: ``multiprocessing`` must have registered before."""
    atexit.register(_close_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_all)


def _close_all() -> None:
    """Runs before the end of ``multiprocessing``, which sends SIGTERM to workers and waits for them."""
    for worker in [*_workers]:
        worker.close()


def _forget_all() -> None:
    """Close the pipes of workers in a copy of this process: with a copy open, a worker would not notice the end."""
    for worker in _workers:
        worker.pipe.close()
    _workers.clear()


def _run(serve: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    """Run a worker. It ends without Python's clean-up, which belongs to the process that it is a copy of."""
    signal.set_wakeup_fd(-1)  # of an event loop
    for number in _FOR_THIS_PROCESS:
        signal.signal(number, signal.SIG_IGN)
    use_one_thread()
    with contextlib.suppress(EOFError, OSError):
        serve(pipe, *arguments)
    os._exit(0)


def use_one_thread() -> None:
    """Let torch, if it is loaded, compute with one thread."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def do_tasks(pipe: Connection, function: Callable[[Task], object]) -> None:
    """Serve by sending the outcome of each task: (True, result) or (False, error).

    A thread reads all the time: if both processes waited until the other has read, they would wait for ever. If the first
    process closes the pipe or dies, the worker ends at once, even within a task, because it holds copies of its locks.
    """
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                tasks.put(pipe.recv_bytes())
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        pipe.send_bytes(_outcome(function, tasks.get()))


def _outcome(function: Callable[[Task], object], task: bytes) -> bytes:
    try:
        return pickle.dumps((True, function(pickle.loads(task))))
    except Exception as error:
        try:
            packed = pickle.dumps((False, error))
            pickle.loads(packed)
            return packed
        except Exception:  # an error that cannot be sent
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def mapped(function: Callable[[Task], Result], tasks: Iterable[Task], processes: int) -> Iterator[Result]:
    """Yield the result of each task, in order, like ``map``. Raises ``WorkerEnded``.

    A worker has at most ``_AHEAD`` tasks, so memory is bounded.
    """
    busy = deque[WorkerProcess]()  # one entry for each task in progress, the oldest first
    with _task_workers(function, processes) as workers:
        for worker, task in zip(itertools.cycle(workers), tasks):
            if len(busy) == _AHEAD * processes:
                yield busy.popleft().result()
            worker.send(task)
            busy.append(worker)
        while busy:
            yield busy.popleft().result()


def side_by_side(
    function: Callable[[Task], Result], tasks: Iterable[Task | None], processes: int
) -> Iterator[tuple[Task, Result] | None]:
    """Yield each task with its result, as they are ready. Raises ``WorkerEnded``.

    A ``None`` task is a barrier: earlier tasks finish first, then None is yielded. Workers start with the second task; a
    single task is done in this process, as all are with ``processes=1``.
    """
    held: list[Task] = []  # the first task, until another one comes
    busy: dict[WorkerProcess, list[Task]] = {}  # workers, with their tasks in progress

    def ready() -> Iterator[tuple[Task, Result]]:
        """At least one result, waiting for it."""
        of_pipe = {worker.pipe: worker for worker, doing in busy.items() if doing}
        for pipe in wait([*of_pipe]):
            worker = of_pipe[pipe]  # type: ignore[index]
            yield busy[worker].pop(0), worker.result()

    def finish() -> Iterator[tuple[Task, Result]]:
        yield from ((task, function(task)) for task in held)
        held.clear()
        while any(busy.values()):
            yield from ready()

    with contextlib.ExitStack() as workers:
        for task in tasks:
            if task is None:
                yield from finish()
                yield None
            elif processes == 1:
                yield task, function(task)
            elif not busy and not held:
                held.append(task)
            else:
                if not busy:
                    busy = {worker: [] for worker in workers.enter_context(_task_workers(function, processes))}
                for queued in (*held, task):
                    if min(map(len, busy.values())) >= _AHEAD:
                        yield from ready()
                    worker = min(busy, key=lambda worker: len(busy[worker]))
                    busy[worker].append(queued)
                    worker.send(queued)
                held.clear()
        yield from finish()


@contextlib.contextmanager
def _task_workers(function: Callable[[Task], object], processes: int) -> Iterator[list[WorkerProcess]]:
    workers = list[WorkerProcess]()
    try:
        for _ in range(processes):
            workers.append(WorkerProcess(do_tasks, function, copied=possible()))
        yield workers
    finally:
        for worker in workers:
            worker.close()
