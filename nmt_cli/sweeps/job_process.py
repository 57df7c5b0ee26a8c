"""A process for one job of a sweep, below the worker that a launcher started.

The kernel kills the process with the most memory. If that is the worker itself, joblib ends all other jobs and submitit
forgets the rest of the sweep. The worker therefore only waits, and a killed job is one failed job.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn, TypeVar

from nmt import interruptions
from nmt.errors import DeviceError

T = TypeVar("T")


def in_own_process(work: Callable[[], T]) -> T:
    """Run ``work`` in a copy of this process; return its result or raise its error. ``DeviceError`` if it was killed.

    SIGTERM and SIGUSR1 are passed on. If this process ends, its copy is asked to stop.
    """
    ours, theirs = Pipe(duplex=False)
    watched, held = os.pipe()
    with interruptions.held():
        process = os.fork()
        if process == 0:
            os.close(held)
            ours.close()
            _serve(work, theirs, watched)
    theirs.close()
    os.close(watched)
    with (
        interruptions.handled((signal.SIGTERM, signal.SIGUSR1), lambda number, _: _pass_on(process, number)),
        interruptions.handled((signal.SIGINT,), signal.SIG_IGN),  # Ctrl-C reaches the copy too
        ours,
    ):
        try:
            good, result = pickle.loads(ours.recv_bytes())
        except EOFError:
            good, result = False, None
        _, status = os.waitpid(process, 0)
        os.close(held)
    if good:
        return result  # type: ignore[no-any-return]
    if result is None:
        raise DeviceError(_ending(os.waitstatus_to_exitcode(status)))
    raise result


def _pass_on(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _ending(code: int) -> str:
    how = f"with status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    return f"its process died {how}; if memory was short, run fewer jobs at once or lower --max-tokens"


def _serve(work: Callable[[], object], results: Connection, watched: int) -> NoReturn:
    """In the copy: do the work, send its result or error, and end without Python's clean-up, which belongs to the worker."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # submitit's handler would put the job into the queue again
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_stop_with, args=(watched,), daemon=True).start()
    try:
        try:
            outcome = pickle.dumps((True, work()))
        except BaseException as error:
            outcome = _pickled(error)
        with contextlib.suppress(OSError):  # the worker is gone
            results.send_bytes(outcome)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
    finally:  # nothing may continue in the worker's frames
        os._exit(0)


def _pickled(error: BaseException) -> bytes:
    try:
        return pickle.dumps((False, error))
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _stop_with(watched: int) -> None:
    """Ask this process to stop as soon as the worker, which holds the other end of the pipe, has ended."""
    os.read(watched, 1)
    os.kill(os.getpid(), signal.SIGTERM)
