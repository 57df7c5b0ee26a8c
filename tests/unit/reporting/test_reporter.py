"""Meters, the event log, and when the reporter writes to it."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from nmt.config.choices import ProgressStyle
from nmt.config.reporting import ReportConfig
from nmt.reporting import stopwatch
from nmt.reporting.figures import Meters, perplexity
from nmt.reporting.reporter import Reporter
from nmt.reporting.run_record import EventLog, RunRecord
from nmt.reporting.stopwatch import ProcessorShare
from nmt.training.loop.validation import Sample
from nmt.training.setup.operations import Cost
from tests.unit.reporting.reports import update_report


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def _counted(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events without what is measured of the machine."""
    return [{name: value for name, value in event.items() if name != "processor_share"} for event in events]


def test_the_figures_of_a_line_are_means_over_its_updates() -> None:
    meters = Meters()
    for number in (1, 2):
        meters = meters.plus(update_report(number))
    assert meters.means(2, 1, memory_mb=7.5, seconds=3.0) == {
        "update": 2,
        "epoch": 1,
        "loss": pytest.approx(3.0),  # 30 over 10 of the denominator
        "nll": pytest.approx(3.0),  # 24 over 8 tokens
        "ppl": pytest.approx(math.exp(3.0)),
        "lr": 0.02,
        "grad_norm": pytest.approx(0.15),
        "largest_grad_norm": 0.2,
        "tokens": 8,
        "tokens_per_second": 8.0,
        "memory_mb": 7.5,
        "seconds": 3.0,
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
        options = ReportConfig(log_interval=3, progress=ProgressStyle.none)
        reporter = Reporter(folder, options, total_updates=9, memory=lambda: 1_500_000)
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
    assert _counted(lines(tmp_path / "parts")) == _counted(lines(tmp_path / "whole"))


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
    assert len(caplog.records) == 1 and "training continues" in caplog.text


def test_an_event_of_training_records_the_most_memory_held_so_far(tmp_path: Path) -> None:
    options = ReportConfig(log_interval=1, progress=ProgressStyle.none)
    held = iter([2_345_678, 3_000_000])
    reporter = Reporter(tmp_path, options, total_updates=None, memory=lambda: next(held))
    reporter.start(0)
    for number in (1, 2):
        reporter.update(number, 1, update_report(number), seconds=number)
    assert [event["memory_mb"] for event in lines(tmp_path)] == [2.3, 3.0]


def test_the_start_records_the_facts_and_the_end_the_cost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopwatch, "_THREADS", tmp_path / "none")  # the share of a processor differs by machine
    reporter = Reporter(tmp_path, ReportConfig(progress=ProgressStyle.none), total_updates=None)
    reporter.start(0, {"environment": {"torch": "2"}}, Cost(flops_per_token=1e6, device_tflops=2.0))
    with caplog.at_level(logging.INFO, "nmt"):
        reporter.end(9, 2, ending="9 updates are made", tokens=5000, seconds=3661)
    start, end = lines(tmp_path)
    assert (start["event"], start["environment"], start["flops_per_token"]) == ("start", {"torch": "2"}, 1e6)
    assert (end["event"], end["ending"], end["tokens"]) == ("end", "9 updates are made", 5000)
    assert (end["flops_counted"], end["flops_estimated"]) == (5e9, 3661 * 2e12)
    assert caplog.messages == [
        "trained on 5,000 target tokens in 1:01:01 | 5e+09 operations counted | 7.32e+15 operations estimated"
    ]


def test_the_end_counts_the_devices_of_each_start(tmp_path: Path) -> None:
    """Ten seconds on one device, of which the log knows nine, and half as many again on four others."""
    options = ReportConfig(log_interval=1, progress=ProgressStyle.none)
    for update, seconds, cost in ((0, 0.0, Cost(None, 2.0, 1)), (2, 10.0, Cost(None, 3.0, 4))):
        reporter = Reporter(tmp_path, options, total_updates=None)
        reporter.start(update, {}, cost, seconds)
        for number in (1, 2, 3):  # what the first start did after update 2 is dropped
            reporter.update(update + number, 1, update_report(number), seconds=seconds + 4.5 * number)
    reporter.end(5, 1, ending="", tokens=0, seconds=25.0)
    assert lines(tmp_path)[-1]["flops_estimated"] == 10 * 2e12 + 15 * 4 * 3e12


def test_translations_of_a_validation_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter(tmp_path, ReportConfig(progress=ProgressStyle.none), total_updates=None)
    with caplog.at_level(logging.INFO, "nmt"):
        reporter.samples([Sample("ein Haus", "a house", "a home")])
    assert "sample 1 source:     ein Haus" in caplog.messages
    assert "sample 1 hypothesis: a home" in caplog.messages


def test_translations_of_a_validation_are_recorded_once_and_survive_a_continuation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nmt.reporting.reporter.log_samples", lambda samples: None
    )  # pytest's own workers need whole text
    reporter = Reporter(tmp_path, ReportConfig(progress=ProgressStyle.none), total_updates=None)
    reporter.start(0)
    odd = "a\u2028b\x85c \udc80"  # two separators of lines, and half a character
    reporter.samples([Sample("ein Haus", "a house", odd)])
    reporter.valid(1, 1, {"loss": 2.0}, best=True)
    reporter.valid(2, 1, {"loss": 1.0}, best=True)
    EventLog(tmp_path / "log.jsonl").rewind(2)
    written = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").split("\n") if line]
    assert [event["event"] for event in written] == ["samples", "valid", "valid"]
    assert written[0]["samples"] == [{"source": "ein Haus", "reference": "a house", "hypothesis": odd}]
    assert (written[0]["update"], written[0]["epoch"]) == (1, 1)


def test_the_last_interval_is_in_the_end_and_on_the_display(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = ReportConfig(log_interval=4, progress=ProgressStyle.lines)
    reporter = Reporter(tmp_path, options, total_updates=None, clock=lambda: 0.0)
    reporter.start(0)
    with caplog.at_level(logging.INFO, "nmt"):
        for number in range(1, 7):
            reporter.update(number, 1, update_report(number), seconds=number)
        reporter.end(6, 1, ending="6 updates are made", tokens=24, seconds=6.0)
    *_, end = lines(tmp_path)
    assert (end["event"], end["loss"], end["largest_grad_norm"]) == ("end", 11.0, pytest.approx(0.6))
    assert (end["tokens"], end["tokens_per_second"]) == (24, 8.0)
    assert any("update 6 | loss 11.0000" in message for message in caplog.messages)
    record = RunRecord.read(tmp_path)
    assert record.training("loss")[-1] == (6, 11.0) and record.tokens == 24


def test_an_end_at_an_interval_repeats_no_figures(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, ReportConfig(log_interval=2, progress=ProgressStyle.none), total_updates=None)
    reporter.start(0)
    for number in (1, 2):
        reporter.update(number, 1, update_report(number), seconds=number)
    reporter.end(2, 1, ending="", tokens=8, seconds=2.0)
    assert "loss" not in lines(tmp_path)[-1]


def test_where_the_time_went_is_in_each_event_and_in_the_last_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessorShare, "take", lambda self: 0.4)
    times = {"computing": 6.0, "reading": 1.0, "waiting": 0.0, "validation": 2.0, "checkpoints": 1.0}
    reporter = Reporter(tmp_path, ReportConfig(log_interval=1, progress=ProgressStyle.none), total_updates=None)
    reporter.start(0)
    with caplog.at_level(logging.INFO, "nmt"):
        reporter.update(1, 1, update_report(1), seconds=10.0, times=times)
        reporter.end(1, 1, ending="", tokens=4, seconds=10.0, times=times)
    assert [(event["times"], event["processor_share"]) for event in lines(tmp_path)] == [(times, 0.4)] * 2
    expected = "computing 60.0 % | reading 10.0 % | validation 20.0 % | checkpoints 10.0 % | CPU share 40 %"
    assert expected in caplog.messages
    assert "other processes slowed the run: its threads often waited for a processor" in caplog.messages
