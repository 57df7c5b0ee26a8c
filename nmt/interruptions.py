"""Ctrl-C and SIGTERM: who handles them for a while, and those that come while this process copies itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | signal.Handlers


@contextlib.contextmanager
def handled(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Signals go to ``handler`` within the block. In another thread than the main one, which alone may say so, as before."""
    own = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, handler) for number in numbers} if own else {}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals wait for the end of the block, which copies this process: what a handler raises in the middle of that,
    Python shows and forgets, and the command would go on. A copy has to set its own handlers."""
    came: list[int] = []
    try:
        with handled((signal.SIGINT, signal.SIGTERM), lambda number, frame: came.append(number)):
            yield
    finally:
        for first in came[:1]:
            signal.raise_signal(first)
