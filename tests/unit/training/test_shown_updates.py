"""Which updates a trainer shows."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmt.config.choices import ProgressStyle
from nmt.config.reporting import ReportConfig
from nmt.config.sections import TrainingConfig
from nmt.reporting.reporter import FirstUpdate, Reporter
from nmt.training.loop.trainer import Trainer


def test_training_shows_its_first_update_and_the_ends_of_epochs(
    make_trainer: Callable[..., Trainer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three updates an epoch."""
    options = ReportConfig(log_interval=50, progress=ProgressStyle.lines)
    reporter = Reporter(tmp_path / "run", options, total_updates=None, clock=lambda: 0.0)
    with caplog.at_level(logging.INFO, "nmt"):
        reporter.start(0)
        make_trainer(reporter=reporter, limits=TrainingConfig(max_update=7)).run()
    assert [found[1] for message in caplog.messages if (found := re.search(r"update (\d+)", message))] == [
        "1",
        "3",
        "6",
    ]


class HalfMinutes:
    """Wait for half minutes that pass at once: two, then the end of the update."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.over = threading.Event()

    def __call__(self, seconds: float) -> bool:
        self.waited.append(seconds)
        if len(self.waited) < 3:
            return False
        self.over.set()
        return True


def test_the_first_update_has_a_line_at_its_start_and_each_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    made: list[int] = []

    @contextlib.contextmanager
    def inner(update: int) -> Iterator[None]:
        yield
        made.append(update)

    clock = HalfMinutes()
    around = FirstUpdate(inner, ProgressStyle.lines, clock)
    with caplog.at_level(logging.INFO, "nmt"):
        with around(1201):
            assert clock.over.wait(60)
        with around(1202):
            pass
    assert caplog.messages == [
        "computing the first update, number 1,201",
        "computing the first update: 30 seconds so far",
        "computing the first update: 60 seconds so far",
    ]
    assert clock.waited == [30.0] * 3 and made == [1201, 1202]


@pytest.mark.parametrize("style", [None, ProgressStyle.none])
def test_a_rank_that_shows_nothing_is_silent_during_its_first_update(
    caplog: pytest.LogCaptureFixture, style: ProgressStyle | None
) -> None:
    around = FirstUpdate(contextlib.nullcontext, style, lambda seconds: pytest.fail("it waits"))
    with caplog.at_level(logging.INFO, "nmt"), around(1):
        pass
    assert not caplog.messages
