"""Each moment of a run belongs to one activity; the share of a processor is that of the threads that wanted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.reporting import stopwatch as stopwatch_module
from nmt.reporting.run_record import time_in_words
from nmt.reporting.stopwatch import CHECKPOINTS, READING, VALIDATION, WAITING, ProcessorShare, Stopwatch


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_belongs_to_the_innermost_activity_and_adds_up() -> None:
    clock = Clock()
    stopwatch = Stopwatch(clock)
    clock.now += 4
    with stopwatch.during(VALIDATION):
        clock.now += 2
        with stopwatch.during(WAITING):
            clock.now += 1
        clock.now += 3
    with pytest.raises(ValueError, match="x"), stopwatch.during(READING):
        clock.now += 5
        raise ValueError("x")
    clock.now += 6
    found = stopwatch.take()
    assert found == {"computing": 10.0, "reading": 5.0, "waiting": 1.0, "validation": 5.0, "checkpoints": 0.0}
    assert sum(found.values()) == clock.now - 100.0
    with stopwatch.during(CHECKPOINTS):
        clock.now += 2
        assert stopwatch.take()[CHECKPOINTS] == 2.0  # what is under way counts too
        clock.now += 1
    assert stopwatch.take()[CHECKPOINTS] == 1.0


def write_times(folder: Path, **threads: tuple[int, int]) -> None:
    for name, (used, queued) in threads.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "schedstat").write_text(f"{used} {queued} 7\n")


def test_the_share_of_a_processor_counts_all_threads_since_the_last_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopwatch_module, "_THREADS", tmp_path)
    write_times(tmp_path, a=(1000, 500), b=(10, 10))
    processor = ProcessorShare()
    write_times(tmp_path, a=(1600, 700), b=(10, 10), new=(0, 100))
    assert processor.take() == 600 / 900
    assert processor.take() is None  # nobody wanted to run
    write_times(tmp_path, a=(1700, 700))
    assert processor.take() == 1.0


@pytest.mark.parametrize("content", [None, "", "what"])
def test_where_the_system_counts_nothing_the_share_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setattr(stopwatch_module, "_THREADS", tmp_path / "task")
    if content is not None:
        (tmp_path / "task" / "1").mkdir(parents=True)
        (tmp_path / "task" / "1" / "schedstat").write_text(content)
    assert ProcessorShare().take() is None


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({}, []),
        (
            {"times": {"computing": 9.0, "waiting": 1.0, "reading": 0.0}},
            [("computing", "90.0 %"), ("waiting for ranks", "10.0 %")],
        ),
        ({"processor_share": 0.5}, [("CPU share", "50 %")]),
        ({"times": {"computing": "x", "other": 1.0}, "processor_share": None}, []),
        ({"times": [1, 2]}, []),
    ],
)
def test_shares_are_told_as_far_as_an_event_has_them(event: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert time_in_words(event) == expected
