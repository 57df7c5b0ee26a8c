"""The order in which torch's recorder is used, with one that writes down what happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nmt.modules.recording import _shared_pool, record


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    said: list[str] = []

    class Stream:
        def __init__(self, name: str = "aside") -> None:
            self.name = name

        def wait_stream(self, other: Stream) -> None:
            said.append(f"{self.name} waits for {other.name}")

    class Graph:
        def replay(self) -> None:
            said.append("replay")

    @contextlib.contextmanager
    def stream(there: Stream) -> Iterator[None]:
        said.append(f"on {there.name}")
        yield

    @contextlib.contextmanager
    def graph(recorded: Graph, pool: Any, capture_error_mode: str) -> Iterator[None]:
        said.append(f"record in {pool}, {capture_error_mode}")
        yield
        said.append("recorded")

    pools = iter(("a pool", "another"))
    for name, stand_in in {
        "Stream": Stream,
        "current_stream": lambda: Stream("main"),
        "stream": stream,
        "CUDAGraph": Graph,
        "graph": graph,
        "graph_pool_handle": lambda: next(pools),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    _shared_pool.cache_clear()
    yield said
    _shared_pool.cache_clear()


def test_a_function_runs_once_as_it_is_before_it_is_recorded(happened: list[str]) -> None:
    repeat = record(lambda: happened.append("function"))
    before = ["aside waits for main", "on aside", "function", "main waits for aside"]
    assert happened == [*before, "record in a pool, thread_local", "function", "recorded"]
    happened.clear()
    repeat()
    repeat()
    assert happened == ["replay", "replay"]


def test_recordings_share_their_memory(happened: list[str]) -> None:
    for _ in range(2):
        record(lambda: None)
    assert [line for line in happened if "record in" in line] == ["record in a pool, thread_local"] * 2
