"""Requests to stop: SIGTERM and SIGUSR1 (batch systems), SIGINT (Ctrl-C).

A handler only takes a note; training acts on it after the update at hand. A second SIGINT leaves at once.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

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
