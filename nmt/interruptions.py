"""Ctrl-C and SIGTERM that come while this process copies itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals wait for the end of the block, which copies this process: what a handler raises in the middle of that,
    Python shows and forgets, and the command would go on. A copy has to set its own handlers."""
    if threading.current_thread() is not threading.main_thread():  # handlers run in that one
        yield
        return
    came: list[int] = []
    previous = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)
