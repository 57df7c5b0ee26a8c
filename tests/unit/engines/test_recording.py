"""The order in which torch's recorder is used, with one that writes down what happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from nmt.engines.graphs import Recordings

GPU = torch.device("cuda", 1)


class Stream:
    def __init__(self, said: list[str], name: str) -> None:
        self.said, self.name = said, name

    def wait_stream(self, other: Stream) -> None:
        self.said.append(f"{self.name} waits for {other.name}")


class Graph:
    def __init__(self, said: list[str]) -> None:
        self.said = said

    def capture_begin(self, pool: str, capture_error_mode: str) -> None:
        self.said.append(f"record in {pool}, {capture_error_mode}")

    def capture_end(self) -> None:
        self.said.append("recorded")

    def replay(self) -> None:
        self.said.append("replay")


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    streams, pools = iter(("aside", "another")), iter(("a pool", "another pool"))

    @contextlib.contextmanager
    def stream(there: Stream) -> Iterator[None]:
        said.append(f"on {there.name}")
        yield
        said.append("back")

    @contextlib.contextmanager
    def device(there: torch.device) -> Iterator[None]:
        assert there == GPU
        said.append("there")
        yield

    for name, stand_in in {
        "Stream": lambda: Stream(said, next(streams)),
        "current_stream": lambda: Stream(said, "main"),
        "stream": stream,
        "device": device,
        "CUDAGraph": lambda: Graph(said),
        "graph_pool_handle": lambda: next(pools),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return said


def test_what_warms_up_runs_before_the_function_is_recorded(happened: list[str]) -> None:
    repeat = Recordings(GPU).record(lambda: happened.append("warm-up"), lambda: happened.append("function"))
    before = ["there", "aside waits for main", "on aside", "warm-up", "back", "main waits for aside"]
    assert happened == [*before, "on aside", "record in a pool, thread_local", "function", "recorded", "back"]
    happened.clear()
    repeat()
    repeat()
    assert happened == ["there", "replay"] * 2


def test_recordings_share_their_memory_until_they_are_forgotten(happened: list[str]) -> None:
    recordings = Recordings(GPU)
    for _ in range(2):
        recordings.record(lambda: None, lambda: None)
    recordings.forget()
    recordings.record(lambda: None, lambda: None)
    pools = [line.partition(",")[0] for line in happened if line.startswith("record in")]
    assert pools == ["record in a pool", "record in a pool", "record in another pool"]


def test_a_recording_that_fails_is_ended_and_leaves_its_stream(happened: list[str]) -> None:
    def fail() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        Recordings(GPU).record(lambda: None, fail)
    assert happened[-1] == "recorded" and "replay" not in happened
