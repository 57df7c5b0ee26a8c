"""Processes side by side that share one model.

Small products do not divide well among threads: two processes of one thread each translate far more than one of two. They
are copies of this process (fork), so a model that was loaded before is in memory once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from nmt import interruptions
from nmt.errors import DeviceError

Task = TypeVar("Task")
Result = TypeVar("Result")
Done = tuple[Task, Result]

_AHEAD = 2  # tasks that a process has at a time: it begins the next one before anybody has looked at the last


def possible() -> bool:
    """Whether processes can be copied here: not on Windows, and on macOS not safely."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def one_by_one(function: Callable[[Task], Result], tasks: Iterable[Task | None]) -> Iterator[Done[Task, Result] | None]:
    """Every task with its result; None for None."""
    for task in tasks:
        yield None if task is None else (task, function(task))


def side_by_side(
    function: Callable[[Task], Result], tasks: Iterable[Task | None], processes: int, threads: int = 1
) -> Iterator[Done[Task, Result] | None]:
    """Every task with its result, as they are ready. None among the tasks: what was begun is finished first. The first
    of several tasks starts the processes, each with so many threads; a single one is done here."""
    workers: _Workers[Task, Result] | None = None
    held: list[Task] = []  # until another one comes, or none
    try:
        for task in tasks:
            if task is None:
                yield from workers.finish() if workers else one_by_one(function, held)
                held = []
                yield None
            elif workers is None and not held:
                held = [task]
            else:
                workers = workers or _Workers(function, processes, threads)
                for one in (*held, task):
                    yield from workers.give(one)
                held = []
        yield from workers.finish() if workers else one_by_one(function, held)
    finally:
        if workers is not None:
            workers.close()


class _Workers(Generic[Task, Result]):
    """A few processes and what each of them is doing."""

    def __init__(self, function: Callable[[Task], Result], count: int, threads: int) -> None:
        context = multiprocessing.get_context("fork")
        self._tasks: dict[Connection, list[Task]] = {}
        self._processes: dict[Connection, BaseProcess] = {}
        for _ in range(count):
            ours, theirs = context.Pipe()
            inherited = [*self._tasks, ours]
            process = context.Process(target=_serve, args=(function, theirs, inherited, threads), daemon=True)
            with interruptions.held():
                process.start()
            theirs.close()
            self._tasks[ours], self._processes[ours] = [], process

    def give(self, task: Task) -> Iterator[Done[Task, Result]]:
        """Hand a task to the process that has least to do; before that, what is ready if all have enough."""
        if min(map(len, self._tasks.values())) >= _AHEAD:
            yield from self._ready()
        connection = min(self._tasks, key=lambda one: len(self._tasks[one]))
        self._tasks[connection].append(task)
        with self._alive(connection):
            connection.send_bytes(pickle.dumps(task))

    def finish(self) -> Iterator[Done[Task, Result]]:
        while any(self._tasks.values()):
            yield from self._ready()

    def _ready(self) -> Iterator[Done[Task, Result]]:
        """At least one result, waiting for it."""
        for connection in wait([one for one, tasks in self._tasks.items() if tasks]):
            assert isinstance(connection, Connection)
            with self._alive(connection):
                good, result = pickle.loads(connection.recv_bytes())
            if not good:
                raise result
            yield self._tasks[connection].pop(0), result

    @contextlib.contextmanager
    def _alive(self, connection: Connection) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            process = self._processes[connection]
            process.join(timeout=10)
            code = process.exitcode
            end = f"status {code}" if code is None or code >= 0 else signal.Signals(-code).name
            raise DeviceError(
                f"a process that translated has ended ({end}); if memory was short, lower --max-tokens or --workers"
            ) from None

    def close(self) -> None:
        for connection, process in self._processes.items():
            connection.close()
            process.terminate()
        for process in self._processes.values():
            process.join()


def _serve(
    function: Callable[[Task], Result], connection: Connection, inherited: list[Connection], threads: int
) -> None:
    """What a process does until nobody is there any more. It leaves without Python's own way to end, which belongs to the
    process that it is a copy of."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:  # or it would not be noticed when the first process is gone
        other.close()
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads)
    tasks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def listen() -> None:  # all the time: if both sides waited until the other has read, they would wait for ever
        with contextlib.suppress(EOFError, OSError):
            while True:
                tasks.put(connection.recv_bytes())
        tasks.put(None)

    threading.Thread(target=listen, daemon=True).start()
    with contextlib.suppress(OSError):
        while (task := tasks.get()) is not None:
            connection.send_bytes(_answer(function, pickle.loads(task)))
    os._exit(0)


def _answer(function: Callable[[Task], Result], task: Task) -> bytes:
    try:
        return pickle.dumps((True, function(task)))
    except Exception as error:
        try:
            packed = pickle.dumps((False, error))
            pickle.loads(packed)
            return packed
        except Exception:  # an error that cannot travel
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
