"""The runs on a page, and the events of each in the file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import MissingInputError
from nmt.reporting.runs_page import events_for_script, find_runs, page_data, runs_page, thinned_events
from tests.html_pages import data_of
from tests.unit.reporting.test_curves import write_log


def sweep(folder: Path, *overrides: list[str]) -> Path:
    folder.mkdir()
    records = []
    for number, chosen in enumerate(overrides):
        write_log(folder / str(number), [4.0, 3.0])
        records.append({"overrides": chosen, "folder": str(number), "status": "finished", "error": "no"})
    (folder / "sweep.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return folder


def test_a_sweep_has_a_run_for_each_job_with_the_values_of_its_options(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "sweep", ["optimizer.lr=0.1", "seed=1"], ["optimizer.lr=0.2", "seed=1"])
    single = write_log(tmp_path / "single", [2.0])
    runs = find_runs([folder, single, folder / "0"])
    assert [run.name for run in runs] == ["lr=0.1 seed=1", "lr=0.2 seed=1", "single"], "and each run once"
    options = {"optimizer.lr": "0.2", "seed": "1"}
    assert runs[1].facts()["job"] == {"status": "finished", "error": "no", "options": options}
    assert runs[2].facts() == {"name": "single", "job": {}}


def test_runs_of_one_name_have_their_paths_and_a_missing_folder_is_refused(tmp_path: Path) -> None:
    folders = [write_log(tmp_path / name / "run", [2.0]) for name in "ab"]
    assert [run.name for run in find_runs(folders)] == [str(folder) for folder in folders]
    with pytest.raises(MissingInputError, match="no run folder .*nowhere"):
        find_runs([tmp_path / "nowhere"])


def test_a_damaged_record_of_a_sweep_leaves_a_run_folder(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "run", [2.0])
    for text in ('{"folder": ', '{"folder": 7}\n', "[1]\n"):
        (folder / "sweep.jsonl").write_text(text)
        assert [run.folder for run in find_runs([folder])] == [folder]


def test_what_is_not_finite_is_null_and_a_number_has_six_digits() -> None:
    event = {"event": "train", "loss": math.nan, "nll": 1.23456789, "times": {"reading": math.inf}, "model": {"big": 1}}
    assert events_for_script([event]) == [{"event": "train", "loss": None, "nll": 1.23457, "times": {"reading": None}}]


def train(update: int, loss: float | None = 2.0) -> dict[str, Any]:
    return {"event": "train", "update": update, "loss": loss, "tokens": 10}


def test_a_long_log_is_thinned_and_keeps_extremes_ends_and_tokens() -> None:
    spike, broken = train(7_777, 99.0), train(5_001, None)
    events: list[dict[str, Any]] = [{"event": "start", "update": 0}, *map(train, range(1, 10_001))]
    events[7_777], events[5_001] = spike, broken
    events += [{"event": "samples", "update": number, "samples": []} for number in range(200)]
    kept = thinned_events(events, 100)
    of_training = [event for event in kept if event["event"] == "train"]
    assert len(of_training) <= 100 and len(kept) <= 150
    assert sum(event["tokens"] for event in of_training) == 100_000
    assert {1, 5_001, 7_777, 10_000} <= {event["update"] for event in of_training}
    assert thinned_events(events[:50], 100) == events[:50]


def test_the_page_is_one_file_that_may_load_nothing_and_escapes_its_data(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    folder = write_log(tmp_path / "run", [4.0] * 20_000)
    data = page_data(evil, find_runs([folder]), [[train(n) for n in range(20_000)]], single=False)
    page = runs_page(data)
    assert page.count("<script") == 2 and data_of(page)["title"] == evil
    assert "default-src 'none'" in page and "connect-src" not in page and len(page) < 300_000
    assert "connect-src 'self'" in runs_page(page_data("x", [], single=False, live=True))
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
