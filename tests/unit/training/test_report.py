"""Meters, the event log, and what is shown."""

from __future__ import annotations

import io
import json
import logging
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.config.sections import ProgressStyle, ReportConfig
from nmt.errors import UsageError
from nmt.training.event_log import EventLog
from nmt.training.meters import Meters, UpdateReport, perplexity
from nmt.training.report import Reporter


def update_report(number: int) -> UpdateReport:
    return UpdateReport(
        loss=10.0 * number,
        nll=8.0 * number,
        denominator=5.0,
        tokens=4,
        sentences=2,
        grad_norm=0.1 * number,
        learning_rate=0.01 * number,
        seconds=0.5,
        auxiliary={"balance": 1.0},
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_the_figures_of_a_line_are_means_over_its_updates() -> None:
    meters = Meters()
    for number in (1, 2):
        meters.add(update_report(number))
    assert meters.means() == {
        "loss": pytest.approx(3.0),  # 30 over 10 of the denominator
        "nll": pytest.approx(3.0),  # 24 over 8 tokens
        "ppl": pytest.approx(math.exp(3.0)),
        "lr": 0.02,
        "grad_norm": pytest.approx(0.15),
        "tokens": 8,
        "tokens_per_second": 8.0,
        "auxiliary_balance": pytest.approx(0.2),
    }


def test_perplexity_stays_a_number_however_bad_the_model_is() -> None:
    assert perplexity(math.log(7)) == pytest.approx(7) and math.isfinite(perplexity(1e9))


def test_a_line_is_written_at_every_interval(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, ReportConfig(log_interval=2, progress=ProgressStyle.none), total_updates=None)
    reporter.start(0)
    for number in range(1, 6):
        reporter.update(number, 1, update_report(number), seconds=number)
    assert [(event["update"], event["loss"]) for event in lines(tmp_path)] == [(2, 3.0), (4, 7.0)]


def test_a_run_that_goes_on_writes_the_lines_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    def report(folder: Path, first: int, last: int, state: dict[str, Any] | None) -> dict[str, Any]:
        folder.mkdir(exist_ok=True)
        reporter = Reporter(folder, ReportConfig(log_interval=3, progress=ProgressStyle.none), total_updates=9)
        if state is not None:
            reporter.restore(json.loads(json.dumps(state)))
        reporter.start(first - 1)
        for number in range(first, last + 1):
            reporter.update(number, 1, update_report(number), seconds=number)
        return reporter.state()

    report(tmp_path / "whole", 1, 9, None)
    state = report(tmp_path / "parts", 1, 4, None)
    report(tmp_path / "parts", 5, 7, state)  # killed here: what it wrote after update 4 is written again
    report(tmp_path / "parts", 5, 9, state)
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")


def test_rewinding_drops_later_events_and_a_torn_last_line(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log.jsonl")
    for update in (1, 2, 3):
        log.write({"event": "train", "update": update})
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"event": "tra')
    log.rewind(2)
    assert [event["update"] for event in lines(tmp_path)] == [1, 2]


def test_what_is_no_number_is_null_in_the_log(tmp_path: Path) -> None:
    EventLog(tmp_path / "log.jsonl").write({"event": "valid", "update": 1, "loss": float("nan"), "ppl": float("inf")})
    assert (tmp_path / "log.jsonl").read_text() == '{"event": "valid", "update": 1, "loss": null, "ppl": null}\n'


def test_a_log_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog(tmp_path / "missing" / "log.jsonl")
    log.rewind(0)
    log.write({"event": "train", "update": 1})
    log.write({"event": "train", "update": 2})
    assert len(caplog.records) == 1 and "training goes on" in caplog.text


def shown(tmp_path: Path, style: ProgressStyle) -> None:
    reporter = Reporter(tmp_path, ReportConfig(log_interval=2, progress=style), total_updates=4)
    reporter.start(0)
    for number in (1, 2):
        reporter.update(number, 1, update_report(number), seconds=number)
    reporter.close()


def test_lines_say_how_far_training_is_and_how_it_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        shown(tmp_path, ProgressStyle.lines)
    (line,) = caplog.messages
    assert line.startswith("epoch 1 | update 2/4 | loss 3.0000 | nll 3.0000 | ppl 20.09 | lr 2.000e-02 | norm 0.150 | ")
    assert line.endswith(" left")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "bar"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_terminal_gets_a_bar_and_a_file_gets_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stream: io.StringIO,
    bar: bool,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with caplog.at_level(logging.INFO, "nmt"):
        shown(tmp_path, ProgressStyle.auto)
    assert ("2/4" in stream.getvalue()) == bar
    assert ("update 2/4" in caplog.text) != bar


def test_none_shows_nothing_and_still_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        shown(tmp_path, ProgressStyle.none)
    assert not caplog.messages and capsys.readouterr() == ("", "")
    assert len(lines(tmp_path)) == 1


def test_tensorboard_gets_the_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    reporter = Reporter(
        tmp_path, ReportConfig(tensorboard=True, log_interval=1, progress=ProgressStyle.none), total_updates=None
    )
    reporter.start(0)
    reporter.update(1, 1, update_report(1), seconds=1)
    reporter.valid(1, 1, {"loss": 2.0}, best=True)
    reporter.close()
    (written,) = (tmp_path / "tensorboard").iterdir()
    content = written.read_bytes()
    assert b"train/loss" in content and b"valid/loss" in content


def test_tensorboard_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt\[tensorboard\]'"):
        Reporter(tmp_path, ReportConfig(tensorboard=True), total_updates=None).start(0)


class FailingStream(io.StringIO):
    """A standard error that takes nothing, and counts the attempts."""

    attempts = 0

    def write(self, text: str) -> int:
        self.attempts += 1
        raise OSError(28, "No space left on device")


def test_a_bar_that_cannot_be_drawn_is_given_up_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = FailingStream()
    monkeypatch.setattr(sys, "stderr", stream)
    reporter = Reporter(tmp_path, ReportConfig(log_interval=1, progress=ProgressStyle.bar), total_updates=3)
    reporter.start(0)
    for number in (1, 2, 3):
        reporter.update(number, 1, update_report(number), seconds=number)
    reporter.close()
    assert stream.attempts == 1 and len(lines(tmp_path)) == 3
