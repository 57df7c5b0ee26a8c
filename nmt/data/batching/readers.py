"""Reader processes, which prepare batches while training computes.

A result depends only on its task. So if a reader fails or dies, the training process does the task itself, and raises its
error if there is one. Each reader has one task at a time, and keeps the result until it is fetched, so memory is bounded.

Like all workers, readers ignore signals to the process group (Ctrl-C, the end of a job's time), since training needs batches
until it has saved.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from nmt.workers import WorkerEnded, WorkerProcess, do_tasks

logger = logging.getLogger("nmt.data.batching.readers")

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Announced(Generic[Task]):
    """A task, and its place in the order of requests."""

    place: int
    task: Task


@dataclass
class _Reader(Generic[Task]):
    """A reader process."""

    worker: WorkerProcess
    doing: _Announced[Task] | None = None  # in progress, or done and not fetched


class Readers(Generic[Task, Result]):
    """Does tasks in ``count`` processes, which exist within the ``with`` block; 0: in this process."""

    def __init__(self, work: Callable[[Task], Result], count: int) -> None:
        self._work = work
        self.count = count
        self._readers: list[_Reader[Task]] = []
        self._places = itertools.count()
        self._reached = -1  # the place of the last request
        self._coming: list[_Announced[Task]] = []  # not yet with a reader
        self._done: dict[int, tuple[Task, Result]] = {}  # by place; fetched, not yet requested
        self._lock = threading.Lock()  # a thread reads batches for a GPU

    @property
    def lookahead(self) -> int:
        """The number of tasks to announce at a time."""
        return 2 * self.count

    def __enter__(self) -> Readers[Task, Result]:
        for _ in range(self.count):
            self._readers.append(_Reader(WorkerProcess(do_tasks, self._work, copied=True)))  # keeps corpora mapped
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for reader in self._readers:
                reader.worker.close()
            self._readers = []

    def announce(self, tasks: Iterable[Task]) -> None:
        """Announce the next requests, in order. Earlier announcements may be repeated."""
        with self._lock:
            doing = [reader.doing.task for reader in self._readers if reader.doing is not None]
            known = [
                *(announced.task for announced in self._coming),
                *doing,
                *(task for task, _ in self._done.values()),
            ]
            new = [task for task in tasks if task not in known] if self._readers else []
            self._coming += [_Announced(next(self._places), task) for task in new]
            self._hand_out()

    def __call__(self, task: Task) -> Result:
        with self._lock:
            result = self._finished_result(task)
            self._hand_out()
        return self._work(task) if result is None else result

    def _finished_result(self, task: Task) -> Result | None:
        """Return the result of a task, waiting for its reader; None: no reader has it. Earlier tasks are forgotten."""
        busy = [reader for reader in self._readers if reader.doing is not None and reader.doing.task == task]
        for reader in busy:
            self._fetch(reader)
        places = [announced.place for announced in self._coming if announced.task == task]
        places += [place for place, (done, _) in self._done.items() if done == task]
        if not places:
            return None
        place = self._reached = min(places)
        _, result = self._done.get(place, (task, None))
        self._coming = [announced for announced in self._coming if announced.place > place]
        self._done = {other: done for other, done in self._done.items() if other > place}
        return result

    def _hand_out(self) -> None:
        """Give a task to each idle reader, unless too many results wait."""
        for reader in [*self._readers]:
            if reader.doing is not None and len(self._done) < self.count and reader.worker.pipe.poll():
                self._fetch(reader)
            if reader in self._readers and reader.doing is None and self._coming:
                reader.doing = self._coming.pop(0)
                try:
                    reader.worker.send(reader.doing.task)
                except WorkerEnded:
                    self._lose(reader)

    def _fetch(self, reader: _Reader[Task]) -> None:
        """Fetch the result of a reader; none if it failed."""
        assert reader.doing is not None
        try:
            sound, result = reader.worker.receive()
        except WorkerEnded:
            self._lose(reader)
            return
        if sound and reader.doing.place > self._reached:
            self._done[reader.doing.place] = reader.doing.task, result
        reader.doing = None

    def _lose(self, reader: _Reader[Task]) -> None:
        self._readers.remove(reader)
        left = len(self._readers)
        does = f"{left} continue" if left else "the training process now prepares batches itself, with the same result"
        logger.warning(f"a reader process ended unexpectedly (out of memory?): {reader.worker.ending()}; {does}")
        reader.worker.close()
