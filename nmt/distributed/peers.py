"""What ranks know of each other: which are late, which have ended, and which one reports an error.

Each rank publishes in the store of torch.distributed how many meetings it has reached. A meeting is an exchange that all
ranks make together. If the ranks share out the parameters, they also exchange inside a pass, so each rank publishes how many
layers it has reached since its last meeting. If a rank waits for long, it compares these numbers. Of the ranks that are not
late, the lowest one names the late ranks.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from nmt.errors import AlreadyReported, NMTError, RankLost, quantity
from nmt.reporting.stopwatch import CHECKPOINTS, COMPUTING, READING, VALIDATION

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

logger = logging.getLogger("nmt.training")

PATIENCE = 30.0  # seconds of waiting until a late rank is named
MOMENT = 3.0  # seconds in which the ranks of a failed run tell each other how they ended
_NAMED = 8  # late ranks in a message
SILENT = ", which does not respond"
DOING = {  # by activity
    READING: ", which is reading batches",
    VALIDATION: ", which is validating",
    CHECKPOINTS: ", which is saving a checkpoint",
}

T = TypeVar("T")


@dataclass
class Peers:
    """One rank's view of all ranks."""

    store: Store
    rank: int
    size: int
    activity: Callable[[], str] = lambda: COMPUTING  # of this rank now: one of the stopwatch's
    _arrivals: int = 0  # meetings that this rank has reached
    _layers: int = 0  # layers that it has reached since the last one
    _places: list[str] = field(default_factory=list)  # of each rank: host and process
    _seen: dict[int, tuple[bytes, float]] = field(default_factory=dict)  # what a rank published last, and since when
    _exchanged: float = 0.0  # when the store answered last
    _ended: threading.Event = field(default_factory=threading.Event)

    def publish(self) -> None:
        """Publish host and process. Call this before the process group is created, since that waits for all ranks."""
        self.store.set(f"place-{self.rank}", f"{socket.gethostname()} (process {os.getpid()})")
        self.store.set(f"pulse-{self.rank}", f"0 0 0 {COMPUTING}")

    def watch(self) -> None:
        """Begin to look for late ranks. A separate thread asks the store, whose machine may be the one that stalls."""
        self._exchanged = time.monotonic()
        for work in (self._exchange, self._judge):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self._ended.set()

    def arrive(self) -> None:
        """Count a meeting that this rank has reached."""
        self._arrivals, self._layers = self._arrivals + 1, 0

    def reach_layer(self) -> None:
        """Count a layer of a pass, where ranks that share out its parameters meet."""
        self._layers += 1

    @property
    def position(self) -> tuple[int, int]:
        """How far this rank is: meetings, and layers since the last meeting."""
        return self._arrivals, self._layers

    def _exchange(self) -> None:
        """Publish this rank's pulse, and read the others' once this rank has waited for a while."""
        with contextlib.suppress(RuntimeError):  # the store is gone: the others have ended
            store: Any = self.store.clone()  # type: ignore[attr-defined]  # torch's stubs lack it
            self._places = [place.decode() for place in store.multi_get([f"place-{rank}" for rank in range(self.size)])]
            beat, period = 0, PATIENCE / 15
            keys = [f"pulse-{rank}" for rank in range(self.size)]
            reached, since = self.position, time.monotonic()
            while not self._ended.wait(period):
                beat, position = beat + 1, self.position
                store.set(keys[self.rank], f"{beat} {position[0]} {position[1]} {self.activity()}")
                now = time.monotonic()
                if position != reached:
                    reached, since, self._seen = position, now, {}
                elif now - since > PATIENCE / 3:
                    for rank, pulse in enumerate(store.multi_get(keys)):
                        if rank not in self._seen or self._seen[rank][0] != pulse:
                            self._seen[rank] = pulse, now
                self._exchanged = now

    def _judge(self) -> None:
        """Name late ranks after ``PATIENCE`` seconds, and again each time the waiting time doubles."""
        reached, since, due, named = self.position, time.monotonic(), PATIENCE, False
        last = since
        while not self._ended.wait(PATIENCE / 30):
            before, last = last, time.monotonic()
            if last - before > PATIENCE / 3:  # this process itself was stopped
                since = last
            waited = last - since
            if (position := self.position) != reached:
                if named:
                    logger.warning("all ranks caught up after %.0f s", waited)
                reached, since, due, named = position, last, PATIENCE, False
            elif waited >= due - PATIENCE / 6:
                late = self._late()
                if late and self.rank == self._speaker(late):
                    logger.warning("waiting %.0f s for %s", waited, self._described(late))
                    due, named = 2 * max(due, waited), True

    def _late(self) -> dict[int, str]:
        """Return the ranks that others wait for, and what is known of each: a relative clause, or nothing."""
        now = time.monotonic()
        if now - self._exchanged > PATIENCE / 3:
            return {0: SILENT}
        seen = dict(self._seen)
        silent = {rank for rank, (_, since) in seen.items() if now - since > PATIENCE / 4}
        pulses = {rank: pulse.decode().split() for rank, (pulse, _) in seen.items()}
        positions = {rank: (int(meetings), int(layers)) for rank, (_, meetings, layers, _) in pulses.items()}
        late = silent | {rank for rank, position in positions.items() if position < max(positions.values())}
        return {rank: SILENT if rank in silent else DOING.get(pulses[rank][-1], "") for rank in late}

    def _speaker(self, late: Collection[int]) -> int:
        hosts = [place.split()[0] for place in self._places]
        if set(late) == {0} and len(hosts) > 1:  # its machine may be gone
            return next((rank for rank, host in enumerate(hosts) if host != hosts[0]), 1)
        return next((rank for rank in range(self.size) if rank not in late), -1)

    def _described(self, ranks: Mapping[int, str]) -> str:
        """Return ranks with host and process, each followed by its value."""
        places = dict(enumerate(self._places))
        shown = [f"rank {rank} on {places.get(rank, 'an unknown host')}{ranks[rank]}" for rank in sorted(ranks)]
        more = [f"{len(shown) - _NAMED} more"] if len(shown) > _NAMED else []
        return ", ".join([*shown[:_NAMED], *more])

    def reported_once(self, error: Exception) -> Exception:
        """Return the exception that this rank raises for its own error; of the failing ranks, only the lowest reports it."""
        self.close()
        status: int = getattr(error, "exit_status", 1)
        own = {"error": f"{type(error).__name__}: {error}", "status": status}
        ends = _within(2 * MOMENT + 1, lambda: self._ends(own)) or {}
        if any(rank < self.rank and end.get("error") == own["error"] for rank, end in ends.items()):
            return AlreadyReported(str(error), status)
        return error

    def loss(self, timeout_minutes: float) -> NMTError:
        """Return the exception that this rank raises after it lost the connection to others. If no other rank reports the
        cause, one rank names those that have ended without a message."""
        self.close()
        before = _within(1.0, self._pulses) or []
        ends = _within(2 * MOMENT + 1, lambda: self._ends({}))
        reported_ends = [end for end in (ends or {}).values() if end]
        if reported_ends:
            return AlreadyReported(reported_ends[0]["error"], reported_ends[0]["status"])
        after = _within(1.0, self._pulses) or []
        gone = {rank for rank, (old, new) in enumerate(zip(before, after)) if old == new and rank not in (ends or {})}
        if ends is None or not after:  # rank 0 holds the store
            gone = {0}
        what = f"rank {self.rank} lost the others: "
        what += f"{self._described(dict.fromkeys(gone, ''))} ended" if gone else "a connection broke"
        what += f" without a message, or did not answer for {quantity(timeout_minutes, 'minute')}"
        lost = {rank for rank in (ends or {}) if rank not in gone} or set(range(self.size)) - gone
        error = RankLost(f"{what}; restart all ranks with the same command")
        speaker = self._speaker(gone) if gone == {0} else min(lost)
        return error if self.rank == speaker else AlreadyReported(str(error), error.exit_status)

    def _pulses(self) -> list[bytes]:
        pulses: list[bytes] = self.store.multi_get([f"pulse-{rank}" for rank in range(self.size)])
        return pulses

    def _ends(self, own: Mapping[str, object]) -> dict[int, dict[str, Any]]:
        """Publish how this rank ends, wait a moment for the others, and return the ends that were published, by rank."""
        self.store.set(f"end-{self.rank}", json.dumps(own))
        self._wait_for([f"end-{rank}" for rank in range(self.size)])
        keys = {rank: f"end-{rank}" for rank in range(self.size)}
        ends = {rank: json.loads(self.store.get(key)) for rank, key in keys.items() if self.store.check([key])}
        self.store.set(f"read-{self.rank}", "")
        if self.rank == 0:  # it may hold the store
            self._wait_for([f"read-{rank}" for rank in ends])
        return ends

    def _wait_for(self, keys: list[str]) -> None:
        """Wait for keys, at most ``MOMENT`` seconds. ``Store.wait`` would log its timeout as an error."""
        deadline = time.monotonic() + MOMENT
        while not self.store.check(keys) and time.monotonic() < deadline:
            time.sleep(0.05)


def _within(seconds: float, work: Callable[[], T]) -> T | None:
    """Return the result of ``work``; None if the store fails, or does not answer in time."""
    results: list[T] = []

    def run() -> None:
        with contextlib.suppress(RuntimeError, OSError):
            if "MASTER_PORT" in os.environ:  # torch would print a C++ backtrace if the machine of the store is gone
                address = os.environ.get("MASTER_ADDR", "localhost"), int(os.environ["MASTER_PORT"])
                socket.create_connection(address, timeout=seconds).close()
            results.append(work())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else None
