"""The queue of lines to translate. Lines leave it in windows of lines with equal options.

Order: weighted fair queueing (Demers, Keshav, Shenker 1989) over requests. The virtual finish time of a request's next line
is the virtual time at which the request came, plus the cost of its lines so far and of this one. So a request of a thousand
lines, or of long ones, does not keep a short one waiting, and a long one waits for no more work of others than its own cost.
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

    request: TranslationRequest
    translations: asyncio.Future[list[Rendered]]
    max_bytes: int  # of the answer
    dispatched: int = 0  # lines that have left the queue
    finish_time: float = 0.0  # virtual finish time of the next line
    number: int = 0  # in the order of arrival
    rendered: dict[int, Rendered] = field(default_factory=dict)
    size: int = 0  # of the rendered lines

    def __post_init__(self) -> None:
        self.batch_key = self.request.batch_key
        self.form = self.request.form
        self.costs = [cost_of(line, self.request.options) for line in self.request.lines]
        self.total_cost = sum(self.costs)

    @property
    def waiting(self) -> int:
        """Lines in the queue."""
        return len(self.request.lines) - self.dispatched

    @property
    def next_cost(self) -> float:
        return self.costs[self.dispatched]

    def settle(self, index: int, outcome: Outcome) -> None:
        """Store the outcome of a line. A refused line or an answer that is too large refuses the whole request."""
        if self.translations.done():
            return
        if isinstance(outcome, Rendered):
            self.size += outcome.size
            if self.size > self.max_bytes:
                outcome = answer_too_large(self.max_bytes)
        if isinstance(outcome, Refused):
            self.translations.set_exception(outcome)
            return
        self.rendered[index] = outcome
        if len(self.rendered) == len(self.request.lines):
            self.translations.set_result([self.rendered[number] for number in range(len(self.rendered))])


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
        self._now = 0.0  # virtual time: the finish time of the line that left last
        self._retries = deque[Item]()  # lines of ended workers; each leaves alone, since one of them may be the reason
        self.lines = 0

    @property
    def jobs(self) -> int:
        """Requests with waiting lines."""
        return len(self._jobs)

    def add(self, job: QueuedRequest) -> None:
        job.finish_time, job.number = self._now + job.costs[0], next(self._numbers)
        self._jobs[job] = None
        self.lines += len(job.request.lines)

    def retry(self, items: list[Item]) -> None:
        """Queue lines of ended workers again, before all others."""
        self._retries.extend(items)
        self.lines += len(items)

    def drop(self, job: QueuedRequest) -> int:
        """Drop the waiting lines of a request, and return how many."""
        before = self.lines
        retries = [item for item in self._retries if item.job is not job]
        self.lines -= len(self._retries) - len(retries)
        self._retries = deque(retries)
        if job in self._jobs:
            del self._jobs[job]
            self.lines -= job.waiting
        return before - self.lines

    def take(self, most: int, processes: int, budget: float, *, strictly: bool = False) -> list[Item]:
        """Remove and return a window of lines for one of ``processes`` free workers.

        It has the worker's share of the lines, at most ``most``, with a total cost of at most ``budget``. The first line may
        exceed the budget. With ``strictly``, only requests whose total cost is within the budget are considered.
        """
        if self._retries and (not strictly or self._retries[0].cost <= budget):
            self.lines -= 1
            return [self._retries.popleft()]
        possible = [job for job in self._jobs if not strictly or job.total_cost <= budget]
        if not possible:
            return []
        key = min(possible, key=lambda job: (job.finish_time, job.number)).batch_key
        queue = [(job.finish_time, job.number, job) for job in possible if job.batch_key == key]
        heapq.heapify(queue)
        share = -(-sum(job.waiting for _, _, job in queue) // processes)
        window = list[Item]()
        while queue and len(window) < min(most, share):
            finish_time, number, job = queue[0]
            if job.next_cost > budget and window:
                break
            budget -= job.next_cost
            self._now = max(self._now, finish_time)
            window.append(Item(job, job.dispatched))
            job.dispatched += 1
            if job.waiting:
                job.finish_time += job.next_cost
                heapq.heapreplace(queue, (job.finish_time, number, job))
            else:
                heapq.heappop(queue)
                del self._jobs[job]
        self.lines -= len(window)
        return window
