"""Processes that prepare batches beside training.

What a task results in depends on the task alone, so it does not matter who does it: if a reader fails or ends, the training
process does the task itself, and meets the error if there is one. Each reader has one task at a time, and its result waits
in it until it is fetched: memory is bounded, and nobody waits for room.

A reader ends when the pipe to it is closed, as it is when the training process is killed. Signals to the whole group
(Ctrl-C, the end of a job's time) are for that process alone, which still needs batches until it has saved.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Generic, TypeVar

from nmt import interruptions

logger = logging.getLogger("nmt.data.readers")

Task = TypeVar("Task")
Result = TypeVar("Result")

_FOR_TRAINING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_GRACE = 5.0  # seconds that a reader may take to end


@dataclass(frozen=True)
class _Announced(Generic[Task]):
    """A task, and its place in the order in which tasks will be asked for."""

    place: int
    task: Task


@dataclass
class _Reader(Generic[Task]):
    """One process."""

    process: BaseProcess
    pipe: Connection
    doing: _Announced[Task] | None = None  # or done, and waiting to be fetched


class Readers(Generic[Task, Result]):
    """Does tasks in ``count`` processes, which exist within the ``with`` block; none: everything is done here."""

    def __init__(self, work: Callable[[Task], Result], count: int) -> None:
        self._work = work
        self.count = count
        self._readers: list[_Reader[Task]] = []
        self._places = itertools.count()
        self._reached = -1  # the place of what was asked for last
        self._coming: list[_Announced[Task]] = []  # given to nobody yet
        self._done: dict[int, tuple[Task, Result]] = {}  # by place; fetched, and not asked for yet
        self._lock = threading.Lock()  # batches for a GPU are read in a thread

    @property
    def ahead(self) -> int:
        """How many tasks should be announced at a time."""
        return 2 * self.count

    def __enter__(self) -> Readers[Task, Result]:
        context = multiprocessing.get_context("fork")  # corpora stay mapped
        with interruptions.held():
            for _ in range(self.count):
                ours, theirs = context.Pipe()
                others = [reader.pipe for reader in self._readers]
                process = context.Process(target=_serve, args=(self._work, theirs, [*others, ours]), daemon=True)
                process.start()
                theirs.close()
                self._readers.append(_Reader(process, ours))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for reader in self._readers:
                reader.pipe.close()
            for reader in self._readers:
                reader.process.join(_GRACE)
                if reader.process.is_alive():
                    reader.process.kill()
                    reader.process.join()
            self._readers = []

    def announce(self, tasks: Iterable[Task]) -> None:
        """These will be asked for next, in this order. What was announced before need not be, but may."""
        with self._lock:
            doing = [reader.doing.task for reader in self._readers if reader.doing is not None]
            known = [*(one.task for one in self._coming), *doing, *(task for task, _ in self._done.values())]
            new = [task for task in tasks if task not in known] if self._readers else []
            self._coming += [_Announced(next(self._places), task) for task in new]
            self._hand_out()

    def __call__(self, task: Task) -> Result:
        with self._lock:
            result = self._found(task)
            self._hand_out()
        return self._work(task) if result is None else result

    def _found(self, task: Task) -> Result | None:
        """The result of a task, after waiting if a reader is at it; None: nobody has it. What should have come before is
        forgotten: it was passed over."""
        busy = [reader for reader in self._readers if reader.doing is not None and reader.doing.task == task]
        for reader in busy:
            self._fetch(reader)
        places = [one.place for one in self._coming if one.task == task]
        places += [place for place, (done, _) in self._done.items() if done == task]
        if not places:
            return None
        place = self._reached = min(places)
        _, result = self._done.get(place, (task, None))
        self._coming = [one for one in self._coming if one.place > place]
        self._done = {other: done for other, done in self._done.items() if other > place}
        return result

    def _hand_out(self) -> None:
        """A task to each reader that has none, as long as results are not piling up."""
        for reader in [*self._readers]:
            if reader.doing is not None and len(self._done) < self.count and reader.pipe.poll():
                self._fetch(reader)
            if reader in self._readers and reader.doing is None and self._coming:
                reader.doing = self._coming.pop(0)
                try:
                    reader.pipe.send(reader.doing.task)
                except OSError:
                    self._lose(reader)

    def _fetch(self, reader: _Reader[Task]) -> None:
        """The result of what a reader is doing; nothing if it failed."""
        assert reader.doing is not None
        try:
            sound, result = reader.pipe.recv()
        except (EOFError, OSError):
            self._lose(reader)
            return
        if sound and reader.doing.place > self._reached:
            self._done[reader.doing.place] = reader.doing.task, result
        reader.doing = None

    def _lose(self, reader: _Reader[Task]) -> None:
        self._readers.remove(reader)
        reader.pipe.close()
        reader.process.join(_GRACE)
        left = len(self._readers)
        does = f"{left} more go on" if left else "training reads by itself from now on, with the same result"
        logger.warning(
            f"a reader process ended unexpectedly (out of memory?), with status {reader.process.exitcode}; {does}"
        )


def _serve(work: Callable[[Task], Result], pipe: Connection, others: Iterable[Connection]) -> None:
    """What a reader does. The ends of pipes that are not its own are closed: else no other reader would notice the end."""
    for other in others:
        other.close()
    for number in _FOR_TRAINING:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        while True:
            task = pipe.recv()
            try:
                result = work(task)
            except Exception:  # the training process will meet it
                pipe.send((False, None))
            else:
                pipe.send((True, result))
