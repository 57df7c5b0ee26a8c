"""Saying that work goes on: when there is a line, and what stands in it."""

from __future__ import annotations

import logging
import threading

import pytest

from nmt.config.choices import ProgressStyle
from nmt.progress import ProgressLog, announce, going_on, watched


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_count_has_a_line_each_half_minute_and_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Watch()
    with caplog.at_level(logging.INFO, "nmt"):
        lines = ProgressLog("translated", "lines", 5000, clock)
        for _ in range(7):
            clock.now += 10
            lines.add(100)
        lines.end()
    assert caplog.messages == [
        "translated 300 of 5,000 lines (10.0 a second, 6 %, 0:07:50 left)",
        "translated 600 of 5,000 lines (10.0 a second, 12 %, 0:07:20 left)",
        "translated 700 of 5,000 lines (10.0 a second, 14 %, 0:07:10 left)",
    ]


def test_a_decision_is_shown_where_nothing_shows_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("nmt")
    announce(log, "configured")  # by pytest
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", False)
    announce(log, "not configured")
    assert capsys.readouterr().err == "not configured\n"


def test_no_time_is_left_where_nothing_is_done(caplog: pytest.LogCaptureFixture) -> None:
    """A first line of a million letters takes minutes."""
    clock = Watch()
    with caplog.at_level(logging.INFO, "nmt"):
        lines = ProgressLog("translated", "lines", 2, clock)
        clock.now += 40
        lines.add(0)
        clock.now += 40
        lines.add(1)
    assert caplog.messages == [
        "translated 0 of 2 lines (0.0 a second, 0 %)",
        "translated 1 of 2 lines (0.0 a second, 50 %, 0:01:20 left)",
    ]


@pytest.mark.parametrize(
    ("total", "end"), [(None, "100 lines (10.0 a second)"), (100, "100 of 100 lines (10.0 a second, 100 %)")]
)
def test_the_last_line_says_how_much_was_done(caplog: pytest.LogCaptureFixture, total: int | None, end: str) -> None:
    clock = Watch()
    with caplog.at_level(logging.INFO, "nmt"):
        lines = ProgressLog("translated", "lines", total, clock)
        clock.now += 10
        lines.add(100)
        lines.end()
    assert caplog.messages == [f"translated {end}"]


def test_nothing_is_said_of_work_that_was_not_begun(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        ProgressLog("translated", "lines", None, Watch()).end()
    assert not caplog.messages


def test_work_in_one_piece_has_a_line_each_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    waited: list[float] = []
    done = threading.Event()

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        if len(waited) < 3:
            return False
        done.set()
        return True

    with caplog.at_level(logging.INFO, "nmt"), going_on("learning tokens", wait=wait):
        assert done.wait(60)
    assert waited == [30.0] * 3
    assert caplog.messages == ["learning tokens: 30 seconds so far", "learning tokens: 60 seconds so far"]


def test_the_thread_that_says_so_ends_with_the_work() -> None:
    before = threading.active_count()
    with pytest.raises(KeyError), going_on("learning tokens"):
        assert threading.active_count() == before + 1
        raise KeyError
    assert threading.active_count() == before


def test_nothing_is_said_where_no_progress_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        watched(ProgressStyle.none)("validated", "sentences", 10)(10)
        with going_on("learning tokens", ProgressStyle.none, wait=lambda seconds: pytest.fail("it waits")):
            pass
    assert not caplog.messages
