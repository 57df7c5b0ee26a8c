"""The process of the live page starts and ends with training, and never harms it."""

from __future__ import annotations

import logging
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from nmt.config.reporting import ReportConfig
from nmt.errors import UsageError
from nmt.reporting.callbacks import RunEvent
from nmt.reporting.live_page import LivePage, address_of, listener
from nmt.reporting.reporter import Reporter
from nmt.reporting.sinks import open_sinks


def test_a_port_in_use_is_replaced_by_the_next_free_one() -> None:
    with listener(0) as first, listener(first.getsockname()[1]) as second:
        one, other = (listening.getsockname()[1] for listening in (first, second))
        assert one < other <= one + 20 or other > 1024
        assert address_of(second) == f"http://127.0.0.1:{other}/"


@pytest.mark.parametrize("port", [-1, 65536])
def test_an_impossible_port_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match="watch_port"):
        ReportConfig(watch_port=port)


@pytest.mark.slow
def test_the_page_is_served_from_the_start_of_a_run_to_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nmt.training")
    page, event = LivePage(0), RunEvent("start", tmp_path, 0, 1, {})
    page.on_start(event)
    (address,) = [message.split()[-1] for message in caplog.messages if "the live page" in message]
    with urllib.request.urlopen(address, timeout=20) as answer:
        assert b"connect-src 'self'" in answer.read()
    page.on_end(event)
    assert page._process is not None and page._process.wait(timeout=20) == 0


def test_a_page_that_cannot_start_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", fail)
    reporter = Reporter(tmp_path, ReportConfig(watch=True, watch_port=0, html=False), total_updates=9)
    reporter.start(0, {"environment": {}})
    reporter.end(9, 1, ending="done", tokens=1, seconds=1.0)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    about_the_page = [warning for warning in warnings if "page" in warning]  # a busy machine gives another
    assert about_the_page == ["the live page is switched off, training continues: no more processes"]


@pytest.mark.slow
def test_the_process_ends_with_the_process_of_a_killed_run(tmp_path: Path) -> None:
    script = f"""
import os, sys
from pathlib import Path
from nmt.reporting.callbacks import RunEvent
from nmt.reporting.live_page import LivePage
page = LivePage(0)
page.on_start(RunEvent("start", Path({str(tmp_path)!r}), 0, 1, {{}}))
print(page._process.pid, flush=True)
os._exit(9)
"""
    process = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout)
    waiting = ["tail", f"--pid={process}", "-f", "/dev/null"]
    assert subprocess.run(waiting, timeout=20, check=False).returncode == 0


def test_only_a_run_that_asks_for_a_page_has_one(tmp_path: Path) -> None:
    assert "the live page" not in open_sinks(tmp_path, ReportConfig(html=False), 0)._sinks
    LivePage(0).on_end(RunEvent("end", tmp_path, 0, 1, {}))  # of a run that failed before its start
