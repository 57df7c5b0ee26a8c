"""Lines that wait to be translated. They leave in windows: of one way to be translated, and of every request in turn, so
that one with a thousand lines does not keep one with a single line waiting."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from nmt.serving.asking import Asked
from nmt.serving.refusals import Refused
from nmt.translation import Translation

Outcome = Translation | Refused  # of a line


@dataclass(eq=False)
class Job:
    """A request and what is known of its lines."""

    asked: Asked
    done: asyncio.Future[list[Translation]]
    begun: int = 0  # lines that have left
    found: dict[int, Translation] = field(default_factory=dict)

    def settle(self, index: int, outcome: Outcome) -> None:
        """A line is translated, or cannot be: then neither is the rest of the request."""
        if self.done.done():
            return
        if isinstance(outcome, Refused):
            self.done.set_exception(outcome)
            return
        self.found[index] = outcome
        if len(self.found) == len(self.asked.lines):
            self.done.set_result([self.found[number] for number in range(len(self.found))])


@dataclass(frozen=True)
class Item:
    """A line of a request."""

    job: Job
    index: int


class Waiting:
    """The lines of all requests."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[tuple[object, ...], deque[Job]] = OrderedDict()  # by the way they are translated
        self._again: deque[Item] = (
            deque()
        )  # of a process that has ended; each alone, since one of them may be the reason
        self.lines = 0

    def add(self, job: Job) -> None:
        self._jobs.setdefault(job.asked.way, deque()).append(job)
        self.lines += len(job.asked.lines)

    def add_again(self, items: list[Item]) -> None:
        self._again.extend(items)
        self.lines += len(items)

    def drop(self, job: Job) -> int:
        """Forget what waits of a request; returns how many lines."""
        before = self.lines
        again = [item for item in self._again if item.job is not job]
        self.lines -= len(self._again) - len(again)
        self._again = deque(again)
        jobs = self._jobs.get(job.asked.way)
        if jobs is not None and job in jobs:
            jobs.remove(job)
            self.lines -= len(job.asked.lines) - job.begun
            if not jobs:
                del self._jobs[job.asked.way]
        return before - self.lines

    def take(self, most: int, processes: int) -> list[Item]:
        """A window for one of so many free ``processes``: its share of the lines, and never more than ``most``."""
        if self._again:
            self.lines -= 1
            return [self._again.popleft()]
        if not self._jobs:
            return []
        way, jobs = next(iter(self._jobs.items()))
        there = sum(len(job.asked.lines) - job.begun for job in jobs)
        window: list[Item] = []
        for _ in range(min(most, -(-there // processes))):
            job = jobs.popleft()
            window.append(Item(job, job.begun))
            job.begun += 1
            if job.begun < len(job.asked.lines):
                jobs.append(job)
        self._jobs.move_to_end(way)
        if not jobs:
            del self._jobs[way]
        self.lines -= len(window)
        return window
