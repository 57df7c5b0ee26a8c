"""Places beside the log that receive the events of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nmt.config.sections import ProgressStyle, ReportConfig
from nmt.errors import UsageError
from nmt.training.report import Reporter
from nmt.training.sinks import Sinks

EVENT = {"event": "train", "update": 1, "epoch": 1, "loss": 2.5, "tokens": 7}
QUIET = ProgressStyle.none


class Kept:
    """Keeps what it receives, until it breaks."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.closed = 0
        self._breaks_at = breaks_at

    def write(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)
        if len(self.events) == self._breaks_at:
            raise OSError("the wire is cut")

    def close(self) -> None:
        self.closed += 1


def test_a_sink_that_fails_is_switched_off_with_one_warning_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, whole = Kept(breaks_at=1), Kept()
    sinks = Sinks({"the broken one": broken, "the whole one": whole})
    for _ in range(3):
        sinks.write(EVENT)
    sinks.close()
    assert (len(broken.events), len(whole.events)) == (1, 3)
    assert (broken.closed, whole.closed) == (0, 1)
    assert caplog.messages == ["the broken one is switched off, training goes on: the wire is cut"]


def start(folder: Path, options: ReportConfig) -> Reporter:
    reporter = Reporter(folder, options, total_updates=None)
    reporter.start(0)
    return reporter


def test_tensorboard_gets_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    reporter = start(tmp_path, ReportConfig(tensorboard=True, progress=QUIET))
    reporter.valid(1, 1, {"loss": 2.0, "bleu": 3.0}, best=True)
    reporter.close()
    (written,) = (tmp_path / "tensorboard").iterdir()
    content = written.read_bytes()
    assert b"valid/bleu" in content and b"valid/loss" in content and b"valid/update" not in content


def test_tensorboard_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt\[tensorboard\]'"):
        start(tmp_path, ReportConfig(tensorboard=True))
