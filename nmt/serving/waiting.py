"""The queue of lines to translate. Lines leave it in windows of lines with equal options.

Order: weighted fair queueing (Demers, Keshav, Shenker 1989) over requests. A request's next line is due at the virtual time
at which the request came, plus the cost of its lines so far and of this one. So a request of a thousand lines, or of long
ones, does not keep a short one waiting, and a long one waits for no more work of others than its own cost.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field

from nmt.serving.costs import cost_of
from nmt.serving.refusals import Refused
from nmt.serving.rendering import Rendered, answer_too_large
from nmt.serving.request_forms import TranslationRequest

Outcome = Rendered | Refused  # of a line


@dataclass(eq=False)
class QueuedRequest:
    """A request, its lines that have not left the queue, and the outcomes of the others."""

    asked: TranslationRequest
    done: asyncio.Future[list[Rendered]]
    max_bytes: int  # of the answer
    begun: int = 0  # lines that have left the queue
    due: float = 0.0  # virtual time of the next line
    number: int = 0  # in the order of arrival
    found: dict[int, Rendered] = field(default_factory=dict)
    size: int = 0  # of the rendered lines

    def __post_init__(self) -> None:
        self.batch_key = self.asked.batch_key
        self.form = self.asked.form
        self.costs = [cost_of(line, self.asked.options) for line in self.asked.lines]
        self.total_cost = sum(self.costs)

    @property
    def waiting(self) -> int:
        """Lines in the queue."""
        return len(self.asked.lines) - self.begun

    @property
    def next_cost(self) -> float:
        return self.costs[self.begun]

    def settle(self, index: int, outcome: Outcome) -> None:
        """Store the outcome of a line. A refused line or an answer that is too large refuses the whole request."""
        if self.done.done():
            return
        if isinstance(outcome, Rendered):
            self.size += outcome.size
            if self.size > self.max_bytes:
                outcome = answer_too_large(self.max_bytes)
        if isinstance(outcome, Refused):
            self.done.set_exception(outcome)
            return
        self.found[index] = outcome
        if len(self.found) == len(self.asked.lines):
            self.done.set_result([self.found[number] for number in range(len(self.found))])


@dataclass(frozen=True)
class Item:
    """A line of a request."""

    job: QueuedRequest
    index: int

    @property
    def cost(self) -> float:
        return self.job.costs[self.index]


class Waiting:
    """The queued lines of all requests."""

    def __init__(self) -> None:
        self._jobs: dict[QueuedRequest, None] = {}  # with queued lines
        self._numbers = itertools.count()
        self._now = 0.0  # virtual time: when the line that left last was due
        self._again = deque[Item]()  # lines of ended workers; each leaves alone, since one of them may be the reason
        self.lines = 0

    @property
    def jobs(self) -> int:
        """Requests with waiting lines."""
        return len(self._jobs)

    def add(self, job: QueuedRequest) -> None:
        job.due, job.number = self._now + job.costs[0], next(self._numbers)
        self._jobs[job] = None
        self.lines += len(job.asked.lines)

    def add_again(self, items: list[Item]) -> None:
        self._again.extend(items)
        self.lines += len(items)

    def drop(self, job: QueuedRequest) -> int:
        """Drop the waiting lines of a request, and return how many."""
        before = self.lines
        again = [item for item in self._again if item.job is not job]
        self.lines -= len(self._again) - len(again)
        self._again = deque(again)
        if job in self._jobs:
            del self._jobs[job]
            self.lines -= job.waiting
        return before - self.lines

    def take(self, most: int, processes: int, budget: float, *, strictly: bool = False) -> list[Item]:
        """Remove and return a window of lines for one of ``processes`` free workers.

        It has the worker's share of the lines, at most ``most``, with a total cost of at most ``budget``. The first line may
        exceed the budget. With ``strictly``, only requests whose total cost is within the budget are considered.
        """
        if self._again and (not strictly or self._again[0].cost <= budget):
            self.lines -= 1
            return [self._again.popleft()]
        possible = [job for job in self._jobs if not strictly or job.total_cost <= budget]
        if not possible:
            return []
        key = min(possible, key=lambda job: (job.due, job.number)).batch_key
        queue = [(job.due, job.number, job) for job in possible if job.batch_key == key]
        heapq.heapify(queue)
        share = -(-sum(job.waiting for _, _, job in queue) // processes)
        window = list[Item]()
        while queue and len(window) < min(most, share):
            due, number, job = queue[0]
            if job.next_cost > budget and window:
                break
            budget -= job.next_cost
            self._now = max(self._now, due)
            window.append(Item(job, job.begun))
            job.begun += 1
            if job.waiting:
                job.due += job.next_cost
                heapq.heapreplace(queue, (job.due, number, job))
            else:
                heapq.heappop(queue)
                del self._jobs[job]
        self.lines -= len(window)
        return window
