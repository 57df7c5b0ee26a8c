"""A trace of a few updates: which operators they spend their time in."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from nmt.config.sections import Span
from nmt.storage.files import new_folder

logger = logging.getLogger("nmt.training")

_WARM_UP = 2  # updates of a process before the first one traced, where only a number of them is given
_ROWS = 40


class Profiler:
    """Traces the updates of a span and writes ``profile-FIRST-LAST/`` to the run folder.

    A call is a context manager around one update; whatever goes wrong in here ends the trace, not the update.
    """

    def __init__(self, span: Span, folder: Path, device: torch.device) -> None:
        self._first, self._count = span.first, span.count
        self._folder = folder
        self._on_gpu = device.type == "cuda"
        self._running: profile | None = None
        self._traced: list[int] = []
        self._tried = False

    @contextlib.contextmanager
    def __call__(self, update: int) -> Iterator[None]:
        first = self._first = self._first or update + _WARM_UP
        if self._running is None and first <= update < first + self._count:
            self._begin()
        if self._running is not None:
            self._traced.append(update)
        yield
        if update >= first + self._count - 1:
            self._end()

    def close(self) -> None:
        """Write what was traced, if training ends before the span does; say so if that was nothing."""
        self._end()
        if not self._tried:
            span = f"of the {self._count} from {self._first} on" if self._first else f"after the first {_WARM_UP}"
            logger.warning("nothing was profiled: no update %s was made", span)

    def _end(self) -> None:
        profiler, self._running = self._running, None
        if profiler is not None:
            with _or_warn():
                profiler.stop()
                self._write(profiler, self._folder / f"profile-{self._traced[0]}-{self._traced[-1]}")

    def _begin(self) -> None:
        self._tried = True
        with _or_warn():
            profiler = profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self._on_gpu)
            profiler.start()
            self._running = profiler

    def _write(self, profiler: profile, path: Path) -> None:
        order = "self_device_time_total" if self._on_gpu else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=_ROWS, max_name_column_width=60)
        with new_folder(path, overwrite=True) as folder:
            profiler.export_chrome_trace(str(folder / "trace.json"))
            (folder / "operators.txt").write_text(table, encoding="utf-8")
        logger.info("wrote %s", path)


@contextlib.contextmanager
def _or_warn() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        logger.warning("there is no profile, training goes on: %s", error)
