"""What a function launches on a GPU, recorded once and launched again as a whole: CUDA graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Function = Callable[[], object]


def record(function: Function) -> Callable[[], None]:
    """Runs ``function`` a first time, as it is, and gives what repeats all that it launches.

    The repetitions read and write the memory that the function has read and written: its tensors stay where they are, and
    only numbers in them may differ. It must not ask what is in a tensor.
    """
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        function()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=_shared_pool(), capture_error_mode="thread_local"):
        function()
    return graph.replay


@functools.cache
def _shared_pool() -> Any:
    """One place for what all recordings need while they run, since one runs at a time."""
    return torch.cuda.graph_pool_handle()
