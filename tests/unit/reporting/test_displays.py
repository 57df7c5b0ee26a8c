"""What somebody watching a run sees: lines of a log, or a bar on a terminal."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

from nmt.config.choices import ProgressStyle
from nmt.config.reporting import ReportConfig
from nmt.reporting.reporter import BarDisplay, Reporter
from tests.unit.reporting.reports import update_report

EVENT = {
    "update": 123_456,
    "epoch": 17,
    "loss": 12.3456,
    "nll": 11.5,
    "ppl": 98715.77,
    "lr": 7.1234e-4,
    "grad_norm": 12.3456,
    "tokens": 7,
    "tokens_per_second": 123456.7,
    "memory_mb": 12345.6,
    "seconds": 1.0,
}


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def shown(folder: Path, style: ProgressStyle, total: int | None = 4) -> None:
    """Updates 1 and 2 of a run, 10 seconds each."""
    now = [0.0]
    reporter = Reporter(
        folder,
        ReportConfig(log_interval=2, progress=style),
        total_updates=total,
        memory=lambda: 523_400_000,
        clock=lambda: now[0],
    )
    reporter.start(0)
    for number in (1, 2):
        now[0] += 10.0
        reporter.update(number, 1, update_report(number), seconds=number)
    reporter.close()


def test_a_line_says_how_far_training_is_and_how_it_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        shown(tmp_path, ProgressStyle.lines)
    assert caplog.messages[-1] == (
        "epoch 1 | update 2/4 | loss 3.0000 | nll 3.0000 | ppl 20.09 | lr 2.000e-02 | norm 0.150 | 8 tokens/s | "
        "523 MB | 0:00:20 left"
    )


class Run:
    """A run of updates whose seconds a test says, shown in lines."""

    def __init__(self, folder: Path, *, log_interval: int, after: int = 0) -> None:
        self._now = 0.0
        options = ReportConfig(log_interval=log_interval, progress=ProgressStyle.lines, html=False)
        self.reporter = Reporter(folder, options, total_updates=None, memory=lambda: 0, clock=lambda: self._now)
        self._update = after
        self.reporter.start(after)

    def make(self, count: int, *, seconds: float, ends_epoch: bool = False) -> None:
        """Updates that take so long each; the last one of them may be the last of its epoch."""
        for number in range(count):
            self._now += seconds
            self._update += 1
            ends = ends_epoch and number == count - 1
            self.reporter.update(self._update, 1, update_report(self._update), seconds=self._now, ends_epoch=ends)


def updates(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [int(found[1]) for message in caplog.messages if (found := re.search(r"update (\d+)", message))]


def test_the_first_update_of_a_process_has_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        Run(tmp_path, log_interval=50).make(3, seconds=1)
        Run(tmp_path, log_interval=50, after=3).make(3, seconds=1)
    assert updates(caplog) == [1, 4]


def test_slow_updates_have_a_line_each_half_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        run = Run(tmp_path, log_interval=50)
        run.make(9, seconds=10)
        run.make(2, seconds=45)
    assert updates(caplog) == [1, 4, 7, 10, 11]


def test_a_line_at_an_interval_starts_the_half_minute_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        Run(tmp_path, log_interval=3).make(6, seconds=10)
    assert updates(caplog) == [1, 3, 6]


def test_the_end_of_an_epoch_has_a_line_that_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        Run(tmp_path, log_interval=50).make(5, seconds=1, ends_epoch=True)
    assert updates(caplog) == [1, 5]
    assert ["the epoch ends" in message for message in caplog.messages] == [False, True]


def test_lines_in_between_change_nothing_that_is_recorded(tmp_path: Path) -> None:
    for name, seconds in (("fast", 0.0), ("slow", 40.0)):
        (tmp_path / name).mkdir()
        run = Run(tmp_path / name, log_interval=4)
        run.make(6, seconds=seconds, ends_epoch=True)
        run.make(6, seconds=seconds)
    fast, slow = ([drop_seconds(event) for event in events(tmp_path / name)] for name in ("fast", "slow"))
    assert fast == slow and [event["update"] for event in fast] == [4, 8, 12]


def drop_seconds(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in ("seconds", "processor_share")}


def test_a_line_of_a_run_without_an_end_in_updates_does_not_guess_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        shown(tmp_path, ProgressStyle.lines, total=None)
    assert "update 2 |" in caplog.messages[-1] and "left" not in caplog.text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error becomes a terminal of 80 columns."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "81")  # tqdm leaves one free
    monkeypatch.setenv("LINES", "25")
    return terminal


def screen(terminal: Terminal) -> list[str]:
    """What a terminal shows after all that was written to it."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[A|.", terminal.getvalue(), flags=re.DOTALL):
        if token == "\x1b[A":
            row -= 1
        elif token == "\r":
            column = 0
        elif token == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + token + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.parametrize("total", [200_000, None])
def test_both_lines_of_the_bar_fit_80_columns_and_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, total: int | None
) -> None:
    narrow = narrow_terminal(monkeypatch)
    bar = BarDisplay(123_400, total)
    bar.advance(123_456, 17)
    bar.show(EVENT)
    bar.close()
    first, second = screen(narrow)
    assert first.startswith("epoch 17 ") and "123456" in first and first.endswith("]")
    assert second == "loss 12.346 | ppl 9.872e+04 | norm 12.346 | lr 7.12e-04 | 123457 tok/s | 12.3 GB"
    assert max(len(first), len(second)) <= 80


def test_a_line_of_the_log_does_not_tear_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = narrow_terminal(monkeypatch)
    bar = BarDisplay(0, 10)
    bar.advance(1, 1)
    tqdm.write("a line of the log", file=sys.stderr)
    bar.close()
    first, second = screen(narrow)
    assert first == "a line of the log" and second.startswith("epoch 1 ")


@pytest.mark.parametrize("after", [0, 20], ids=["from the beginning", "resumed"])
@pytest.mark.parametrize("log_interval", [5, 28, 100])
def test_the_bar_shows_the_epoch_under_way_and_a_loss_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_interval: int, after: int
) -> None:
    """28 updates an epoch, whose figures are recorded at its end or elsewhere; the loss of an update is twice its number."""
    narrow = narrow_terminal(monkeypatch)
    options = ReportConfig(log_interval=log_interval, progress=ProgressStyle.bar, html=False)
    reporter = Reporter(tmp_path, options, total_updates=60, memory=lambda: 0, clock=lambda: 0.0)
    reporter.start(after)
    seen = {}
    for number in range(after + 1, 31):
        epoch = 1 if number <= 28 else 2
        reporter.update(number, epoch, update_report(number), seconds=number, ends_epoch=number == 28)
        seen[number] = screen(narrow)
    reporter.close()
    assert seen[28][0].startswith("epoch 1 ")
    assert seen[29][0].startswith("epoch 2 ") and seen[29][1].startswith("loss 58.000 |")
    assert seen[30][0].startswith("epoch 2 ")


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
    assert len(events(tmp_path)) == 1


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
    assert stream.attempts == 2, "one for each line"
    assert len(events(tmp_path)) == 3
