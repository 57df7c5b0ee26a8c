"""The live page: what is served, to whom, and what it costs."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.reporting.live_page import command, listener
from nmt.watching.machine import process_of, usage
from nmt.watching.server import PageServer, news
from tests.html_pages import data_of
from tests.unit.reporting.test_curves import write_log
from tests.unit.reporting.test_runs_page import sweep


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_log(tmp_path / "run", [4.0, 3.0], [10.0])


@pytest.fixture
def port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """That of a server of the run and of a sweep."""
    monkeypatch.setattr("nmt.watching.server._POLL", 0.02)
    server = PageServer(listener(0), [folder, sweep(folder.parent / "sweep", ["seed=1"], ["seed=2"])])
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server.socket.getsockname()[1]
    server.end()
    thread.join()


def ask(port: int, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_pages_events_and_nothing_else_are_served(port: int) -> None:
    status, page = ask(port, "/")
    data = data_of(page)
    assert status == 200 and data["title"] == "run, sweep" and not data["single"] and "connect-src 'self'" in page
    assert [run["name"] for run in data["runs"]] == ["run", "seed=1", "seed=2"]
    status, page = ask(port, "/run?number=0")
    assert status == 200 and data_of(page)["single"] and data_of(page)["title"] == "run"
    answer = json.loads(ask(port, "/events")[1])
    assert [len(run["events"]) for run in answer["runs"]] == [4, 3, 3]
    paths = (
        "/run?number=3",
        "/run?number=-1",
        "/run?number=x",
        "/log.jsonl",
        "/../etc/passwd",
        "//etc/passwd",
        "/events/..%2f",
        "/%00",
    )
    assert {ask(port, path)[0] for path in paths} == {404}
    assert {ask(port, "/", method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS")} == {501}


def test_another_host_is_refused_whatever_address_its_name_has(port: int) -> None:
    assert {
        ask(port, "/", host=host)[0]
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil:1", "[::1", "x")
    } == {403}
    assert ask(port, "/", host="localhost:9000")[0] == 200, "behind a tunnel"


def test_a_page_asks_only_for_events_after_the_last_ones(port: int, folder: Path) -> None:
    answer = json.loads(ask(port, "/events?number=0")[1])["runs"][0]
    with open(folder / "log.jsonl", "a", encoding="utf-8") as log:
        log.write('{"event": "train", "update": 30, "loss": 2.5}\n{"event": "tra')
        log.flush()
        first = json.loads(ask(port, f"/events?number=0&after={answer['position']}")[1])["runs"][0]
        log.write('in", "update": 40, "loss": NaN}\n')
        log.flush()
        second = json.loads(ask(port, f"/events?number=0&after={first['position']}")[1])["runs"][0]
    assert answer["anew"] and not first["anew"] and not second["anew"]
    assert first["events"] == [{"event": "train", "update": 30, "loss": 2.5}], "a line that is being written waits"
    assert second["events"] == [{"event": "train", "update": 40, "loss": None}]


def test_a_log_that_was_written_anew_is_read_from_its_beginning(folder: Path) -> None:
    position = news(folder, "")["position"]
    other = folder / "other"
    other.write_text('{"event": "start", "update": 0}\n')
    other.rename(folder / "log.jsonl")  # as a run does that resumes
    assert news(folder, position)["anew"] and len(news(folder, position)["events"]) == 1
    (folder / "log.jsonl").write_text("")
    assert news(folder, news(folder, "")["position"]) | {"age": 0} == news(folder, "") | {"age": 0, "anew": False}
    assert news(folder / "gone", position)["events"] == []


def test_a_long_log_comes_in_parts_and_a_damaged_one_does_not_stop_it(folder: Path) -> None:
    lines = [json.dumps({"event": "train", "update": number, "text": "x" * 400}) for number in range(3000)]
    (folder / "log.jsonl").write_text("\n".join(["nonsense", *lines, "x" * 2**21, '{"event": "end", "update": 9}\n']))
    position, events = "", list[Any]()
    for _ in range(9):
        part = news(folder, position)
        position, events = part["position"], events + part["events"]
    assert [event["update"] for event in events] == [*range(3000), 9]


def test_an_answer_is_limited_for_all_runs_together(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.watching.server._MOST_BYTES", 300)
    counts, after, more = [0, 0, 0], "", True
    while more:
        runs = json.loads(ask(port, f"/events?after={after}")[1])["runs"]
        assert sum(run["bytes"] for run in runs) <= 300
        counts = [count + len(run["events"]) for count, run in zip(counts, runs)]
        after, more = ",".join(run["position"] for run in runs), any(run["more"] for run in runs)
    assert counts == [4, 3, 3]


def test_the_process_of_a_run_is_alive_gone_or_unknown(folder: Path) -> None:
    def status(**more: Any) -> tuple[str | None, int]:
        facts = {"reason": "running", "host": os.uname().nodename, "process": os.getpid(), **more}
        (folder / "status.json").write_text(json.dumps(facts))
        return process_of(folder)

    assert process_of(folder) == (None, 0) and status() == ("alive", os.getpid())
    assert status(process=2**22 + 1) == ("gone", 2**22 + 1)
    assert status(host="elsewhere") == status(reason="finished") == status(process="x") == (None, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_cpu_and_memory_of_a_process_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho 0, 93, 1000\necho 1, 5, 10\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    first = usage(os.getpid())
    assert first["memory"] > 1 and first["gpus"] == [(0, 93, 1048.576), (1, 5, 10.48576)]
    fake.write_text("#!/bin/sh\nexit 1\n")
    before = sum(os.times()[:2])
    while sum(os.times()[:2]) - before < 0.05:
        pass
    now[0] += 2.0
    second = usage(os.getpid())
    assert 0.03 < second["seconds"] - first["seconds"] < 1.0 and second["time"] - first["time"] == 2.0
    assert second["gpus"] == first["gpus"], "asked every 5 seconds at most"
    now[0] += 4.0
    assert usage(os.getpid())["gpus"] == [] and usage(2**22 + 1)["memory"] is None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_process_needs_less_than_60_mb_and_ends_when_training_ends(folder: Path) -> None:
    line = json.dumps({"event": "train", "update": 1, **{f"figure{number}": 1.23456 for number in range(20)}})
    with open(folder / "log.jsonl", "a") as log:
        log.writelines(f"{line}\n" for _ in range(8_000))  # 4 MB
    with listener(0) as listening:
        started = command(listening, [folder], os.getpid())
        process = subprocess.Popen(started, pass_fds=[listening.fileno()], stderr=subprocess.PIPE, text=True)
        port = listening.getsockname()[1]
    position, more = "", True
    assert ask(port, "/")[0] == 200
    while more:
        run = json.loads(ask(port, f"/events?after={position}")[1])["runs"][0]
        position, more = run["position"], run["more"]
    status = Path(f"/proc/{process.pid}/status").read_text()
    process.terminate()
    assert ask(port, "/events")[0] == 200, "an open page can fetch the last events"
    _, log_lines = process.communicate(timeout=20)
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])
    assert peak < 60_000 and process.returncode == 0 and log_lines == ""
