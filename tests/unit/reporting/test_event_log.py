"""The log of a run, whose disk may be full."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.reporting.run_record import EventLog, read_events, stretches


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def train(update: int) -> dict[str, object]:
    return {"event": "train", "update": update, "loss": 2.0, "tokens": 10}


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A log of which the disk had room for half of a line, and of this line's last letter for half."""
    path = tmp_path / "log.jsonl"
    log = EventLog(path)
    log.write(train(1))
    event = {"event": "samples", "update": 2, "text": "größer"}
    head = json.dumps(event, ensure_ascii=False).partition("ö")[0].encode()
    with no_file_larger_than(path.stat().st_size + len(head) + 1):
        log.write(event)
    assert path.read_bytes().endswith(head + "ö".encode()[:1])
    return path


def test_a_torn_line_costs_no_other(torn: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog(torn)
    for update in (3, 4):
        log.write(train(update))
    assert [event["update"] for event in read_events(torn)] == [1, 3, 4]
    assert torn.read_bytes().count(b"\n") == 4, "no line is empty"


def test_a_torn_log_is_rewound(torn: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog(torn)
    log.write(train(3))
    log.write(train(4))
    caplog.clear()
    log.rewind(3)
    log.write(train(4))
    assert not caplog.messages
    assert [json.loads(line)["update"] for line in torn.read_text(encoding="utf-8").splitlines()] == [1, 3, 4]


def test_the_seconds_of_a_run_belong_to_its_starts() -> None:
    one, two = ({"event": "start", "update": 0, "devices": count} for count in (1, 4))
    lines = [{"event": "train", "update": 9, "seconds": seconds} for seconds in (50.0, 90.0, 130.0)]
    assert stretches([one, *lines[:2], two, lines[2]]) == [(one, 90.0), (two, 40.0)]
    exact = two | {"seconds": 95.0}  # what came after the last line counts too
    assert stretches([one, *lines[:2], exact, lines[2]]) == [(one, 95.0), (exact, 35.0)]
    assert stretches([one, two, *lines]) == [(two, 130.0)]
    assert stretches([lines[0], two]) == [({}, 50.0), (two, 0.0)]
    assert stretches(lines) == [({}, 130.0)] and stretches([]) == [({}, 0.0)]


def test_skipped_updates_are_rewound_by_their_own_number(tmp_path: Path) -> None:
    """Theirs is that of the next update: a checkpoint may have been written before or after them."""
    log = EventLog(tmp_path / "log.jsonl")
    log.write({"event": "train", "update": 4})
    for number in (1, 2):
        log.write({"event": "skipped", "update": 5, "number": number})
    log.rewind(4, skipped=1)
    assert [event.get("number") for event in log.events()] == [None, 1]
    log.rewind(4)
    assert [event["event"] for event in log.events()] == ["train"]


@pytest.mark.parametrize("number", [None, "1", [1]])
def test_a_skipped_update_without_a_number_is_dropped(tmp_path: Path, number: object) -> None:
    log = EventLog(tmp_path / "log.jsonl")
    log.write({"event": "skipped", "update": 1, "number": number})
    log.rewind(4, skipped=1)
    assert not log.events()
