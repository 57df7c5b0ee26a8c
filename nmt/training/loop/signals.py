"""Requests to stop: SIGTERM and SIGUSR1 (batch systems), SIGINT (Ctrl-C).

A handler only takes a note; training acts on it after the update at hand. A second SIGINT leaves at once.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from nmt.distributed.world import World
from nmt.errors import Interrupted

GRACEFUL = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Listens while its ``with`` block runs (in the main thread; elsewhere Python allows no handlers)."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in GRACEFUL}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def __bool__(self) -> bool:
        return self.received is not None

    def interruption(self, message: str) -> Interrupted:
        """What to raise once everything is saved: 130 after Ctrl-C, else 75 (try again)."""
        by_hand = self.received is signal.SIGINT
        cause = "another process" if self.received is None else self.received.name
        return Interrupted(f"stopped by {cause}; {message}", exit_status=130 if by_hand else 75)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        if self.received is signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # the next one raises KeyboardInterrupt


class Pulse:
    """What all processes must know alike: the time, by the clock of the first one, and whether any was asked to stop."""

    def __init__(self, stop: StopRequest, world: World, clock: Callable[[], float] = time.monotonic) -> None:
        self.stop = stop
        self.clock = clock
        self.now = 0.0  # seconds, when the processes last asked each other
        self.stopping = False
        self._world = world

    def listen(self) -> float:
        """Ask all processes; the seconds since they did so before."""
        before = self.now
        requests, self.now = self._world.sums([float(bool(self.stop)), self.clock() if self._world.main else 0.0])
        self.stopping = requests > 0
        return self.now - before
