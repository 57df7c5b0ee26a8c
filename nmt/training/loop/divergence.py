"""Notice a model that does not learn although its loss and gradient are finite.

The watch looks at the negative log-likelihood (nll) of each update in nats per target token; losses with other terms have
no known scale. Two references are known before training begins: the nll of a random guess over V tokens, ln V, and the
entropy of the target tokens, which a model reaches by their frequencies alone. A model that learns falls below both.

The state of the watch is a function of the updates so far and is stored with them, so a resumed run warns and stops at the
same updates. All ranks observe the same sums and make the same decisions.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nmt.pages.numbers import figure

WINDOW = 50  # updates of the running median
MARGIN = 1.0  # nats above ln V, and above the median for a spike: noise of small batches
NOISE = 10.0  # median deviations above the median, for a spike
TOLERANCE = 0.05  # share of the entropy that lengths and noise may save
LONGEST_WARMUP = 1000  # updates after which frequencies should be learned, however long the warmup is
WARN_RANDOM, WARN_FREQUENCIES = 50, 500  # updates without progress before a warning
FASTER = 10  # how many times sooner training stops if the model is worse than a random guess


@dataclass(frozen=True)
class References:
    """The nll in nats per target token of models that have learned nothing, and of those that know frequencies."""

    vocabulary: int
    random: float  # ln V
    frequencies: float


@dataclass
class Doubt:
    """The present updates in a row whose median nll is above a bound."""

    since: int | None = None  # the first of them
    lowest: float = 0.0  # excess over the bound at the last progress
    stalled: int = 0  # updates since the last progress
    warned: bool = False  # whether a warning was logged

    def observe(self, update: int, excess: float) -> None:
        """Progress halves the excess: a run that recovers does so in few updates, a falling learning rate does not."""
        if excess <= 0:
            self.since, self.lowest, self.stalled, self.warned = None, 0.0, 0, False
        elif self.since is None or excess < self.lowest / 2:
            self.since, self.lowest, self.stalled = self.since or update, excess, 0
        else:
            self.stalled += 1

    def state(self) -> dict[str, Any]:
        return {"since": self.since, "lowest": self.lowest, "stalled": self.stalled, "told": self.warned}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Doubt:
        return cls(state["since"], state["lowest"], state["stalled"], warned=state["told"])


@dataclass
class WatchState:
    """What the watch remembers, as a checkpoint stores it."""

    recent: list[float] = field(default_factory=list)  # nll of the last updates
    first: float = 0.0  # nll of the first update: of the untrained model
    learned: int | None = None  # the last update whose median was better than frequencies
    spike: int = 0  # the last update that was reported as a spike
    random: Doubt = field(default_factory=Doubt)
    frequencies: Doubt = field(default_factory=Doubt)


@dataclass
class LearningWatch:
    """Warn of updates without learning and of spikes, and decide when training should stop.

    ``patience``: updates in a row no better than token frequencies before the stop, a tenth of it if they are worse than a
    random guess; None: warnings only. Without ``references`` only spikes are noticed.
    """

    references: References | None = None
    warmup: int = 0
    patience: int | None = None
    memory: WatchState = field(default_factory=WatchState)

    def observe(self, update: int, nll: float, grad_norm: float) -> list[str]:
        memory, warnings = self.memory, list[str]()
        if not memory.recent:
            memory.first = nll
        if len(memory.recent) == WINDOW:
            warnings += self._spike(update, nll, grad_norm)
        memory.recent = [*memory.recent[1 - WINDOW :], nll]
        if self.references is not None and len(memory.recent) == WINDOW:
            self._compare(update, statistics.median(memory.recent), self.references)
            limits = (memory.random, WARN_RANDOM), (memory.frequencies, WARN_FREQUENCIES)
            due = [doubt for doubt, limit in limits if doubt.stalled >= limit and not doubt.warned]
            for doubt in due:
                doubt.warned = True
            warnings += filter(None, [self.finding] if due else [])
        return warnings

    def _compare(self, update: int, median: float, references: References) -> None:
        memory = self.memory
        warm = update > self.warmup
        bound = references.random + MARGIN if warm else 2 * max(references.random, memory.first)
        memory.random.observe(update, median - bound)
        excess = median - (1 - TOLERANCE) * references.frequencies
        memory.frequencies.observe(update, excess if update > min(self.warmup, LONGEST_WARMUP) else 0.0)
        if excess < 0:
            memory.learned = update

    def _spike(self, update: int, nll: float, grad_norm: float) -> list[str]:
        """Report a spike once in ``WINDOW`` updates."""
        median = statistics.median(self.memory.recent)
        if nll <= median + MARGIN or update - self.memory.spike < WINDOW:
            return []
        if nll <= median + NOISE * statistics.median(abs(nll - median) for nll in self.memory.recent):
            return []
        self.memory.spike = update
        return [
            f"update {update}: nll {figure(nll)} per target token is far above the median {figure(median)} of the "
            f"{WINDOW} updates before it (gradient norm {figure(grad_norm)})"
        ]

    @property
    def finding(self) -> str | None:
        """Return a warning about a fault that has lasted long enough, or None."""
        memory, references = self.memory, self.references
        if references is None or len(memory.recent) < WINDOW:
            return None
        now = f"nll {figure(statistics.median(memory.recent))} per target token"
        if memory.random.stalled >= WARN_RANDOM:
            guess = f"ln {references.vocabulary} = {references.random:.2f}"
            return f"since update {memory.random.since} the model is worse than a random guess ({now}, {guess})"
        if memory.frequencies.stalled >= WARN_FREQUENCIES:
            entropy = f"their entropy is {references.frequencies:.2f}"
            since = memory.frequencies.since
            return f"since update {since} the model is hardly better than token frequencies ({now}, {entropy})"
        return None

    @property
    def stops(self) -> bool:
        """Whether training should stop: the model made no progress for too long."""
        patience, memory = self.patience, self.memory
        if patience is None:
            return False
        return memory.frequencies.stalled >= patience or memory.random.stalled >= max(WARN_RANDOM, patience // FASTER)

    @property
    def failed(self) -> bool:
        """Whether a run that ends now has not trained a model: it is worse than a random guess."""
        return self.patience is not None and self.memory.random.stalled >= WARN_RANDOM

    @property
    def in_doubt(self) -> bool:
        """Whether checkpoints of now may be worthless."""
        return self.memory.random.since is not None or self.memory.frequencies.since is not None

    @property
    def good_until(self) -> int | None:
        """The last update before a fault that no median showed yet; None: no median was better than token frequencies."""
        learned = self.memory.learned
        return None if learned is None else learned - WINDOW // 2

    def state(self) -> dict[str, Any]:
        memory = self.memory
        return {**asdict(memory), "random": memory.random.state(), "frequencies": memory.frequencies.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a stored state; an empty one is that of an older version."""
        if state:
            doubts = {name: Doubt.restored(state[name]) for name in ("random", "frequencies")}
            self.memory = WatchState(**{**state, "recent": list(state["recent"]), **doubts})
