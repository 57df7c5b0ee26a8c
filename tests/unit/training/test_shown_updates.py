"""Which updates a trainer shows."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.config.choices import ProgressStyle
from nmt.config.sections import ReportConfig, TrainingConfig
from nmt.reporting.reporter import Reporter
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
