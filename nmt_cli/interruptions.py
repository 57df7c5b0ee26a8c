"""Ctrl-C and SIGTERM outside of training, which has its own way to stop (``nmt/training/loop/trainer.py``)."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


class Terminated(KeyboardInterrupt):
    """SIGTERM, as an exception that unwinds everything like Ctrl-C, so that temporary files are removed."""


@contextlib.contextmanager
def cleaning_up_on_sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    process = os.getpid()

    def stop(number: int, frame: object) -> None:
        if os.getpid() == process:
            raise Terminated
        signal.signal(number, signal.SIG_DFL)  # a forked worker has nothing to clean up
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
