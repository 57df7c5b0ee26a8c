"""What a function launches on a GPU, recorded once and launched again as a whole: CUDA graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

Function = Callable[[], object]


class Recordings:
    """Of one model on one device. They share what they need while they run, since one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None
        self._pool: Any = None

    def record(self, warm_up: Function, function: Function) -> Callable[[], None]:
        """Runs ``warm_up`` as it is, and gives what repeats all that ``function`` launches.

        The repetitions read and write the memory that ``function`` has read and written: its tensors stay where they are,
        and only numbers in them may differ. It must not ask what is in a tensor.
        """
        with torch.cuda.device(self._device):
            if self._stream is None:
                self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            return self._recorded(torch.cuda.current_stream(), warm_up, function)

    def forget(self) -> None:
        """All are gone. The next ones get other memory: what is left of the old may still be read."""
        self._pool = None

    def _recorded(self, before: Any, warm_up: Function, function: Function) -> Callable[[], None]:
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):  # where libraries meet it first, for what they keep for a stream
            warm_up()
        before.wait_stream(self._stream)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                function()
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()

        def repeat() -> None:
            with torch.cuda.device(self._device):
                graph.replay()

        return repeat
