"""Handle signals for a while, and hold back those that arrive while this process copies itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | signal.Handlers


@contextlib.contextmanager
def handled(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Send signals to ``handler`` within the block. No effect outside the main thread."""
    own = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, handler) for number in numbers} if own else {}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the end of the block, which copies this process: Python would only print an
    exception that a handler raises meanwhile, and the command would not stop. A copy must set its own handlers."""
    came: list[int] = []
    try:
        with handled((signal.SIGINT, signal.SIGTERM), lambda number, frame: came.append(number)):
            yield
    finally:
        for first in came[:1]:
            signal.raise_signal(first)
