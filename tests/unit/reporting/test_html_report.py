"""The page of a run: whole, escaped, self-contained, and never worth the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.config.reporting import ReportConfig
from nmt.config.sections import TrainConfig, ValidationConfig
from nmt.errors import MissingInputError
from nmt.reporting import html_report
from nmt.reporting.run_record import RunRecord
from nmt.training.assemble import train
from tests.html_pages import SECTIONS, data_of, read
from tests.unit.pages.scripts import evaluate, needs_node

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]


def write_log(folder: Path, *events: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    return folder


def training(update: int, **figures: float) -> dict[str, Any]:
    return {"event": "train", "update": update, "epoch": 1, "loss": 2.5, "lr": 0.1, "tokens": 100, **figures}


@pytest.fixture
def finished(tiny_run: MakeConfig, tmp_path: Path) -> Path:
    """The folder of a short run with everything on."""
    validation = ValidationConfig(interval=None, interval_updates=4, metrics=["bleu"], samples=2)
    train(tiny_run(validation=validation, report=ReportConfig(log_interval=3, device_tflops=0.5)))
    return tmp_path / "run"


def run_on(folder: Path) -> dict[str, Any]:
    """The run in the data of a page, as its script gets it."""
    (run,) = data_of((folder / "report.html").read_text(encoding="utf-8"))["runs"]
    return dict(run)


def test_a_run_leaves_a_page_with_everything(finished: Path) -> None:
    page = read(finished)
    assert page.headings() == list(SECTIONS)
    texts = page.texts
    assert {"operations counted", "operations estimated: time x 1 x 0.5 TFLOPS", "torch"} <= set(texts)
    assert texts[texts.index("model.d_model") + 1] == "16" and "600" in texts
    events = run_on(finished)["events"]
    assert [event["update"] for event in events if event["event"] == "train"] == [3, 6, 9, 12]
    assert [len(event["samples"]) for event in events if event["event"] == "samples"] == [2, 2, 2]
    assert {"loss", "bleu"} <= {name for event in events if event["event"] == "valid" for name in event}
    assert events[0]["total_updates"] == 12 and events[-1]["ending"] == "12 updates are made"


def test_the_page_needs_no_network_and_no_other_file(finished: Path) -> None:
    page = read(finished)
    targets = [
        value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert targets == ["data:,"]
    text = (finished / "report.html").read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "http" not in text.replace("http-equiv", "") and "url(" not in text and "@import" not in text
    assert "connect-src" not in text and "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


def test_text_is_escaped_wherever_it_comes_from(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>&\"'"
    folder = write_log(
        tmp_path / "a<b>&c",
        {
            "event": "start",
            "update": 0,
            "environment": {evil: evil},
            "changed_options": {evil: evil, "model": evil},
            "model": {"name": evil, "parameters": 1, "parts": {evil: 1}},
        },
        training(10, **{f"auxiliary_{evil}": 1.0}),
        {"event": "samples", "update": 10, "samples": [{"source": evil, "reference": evil, "hypothesis": evil}]},
        {"event": "valid", "update": 10, "epoch": 1, "loss": 2.0, evil: 3.0},
        {"event": "end", "update": 10, "epoch": 1, "ending": evil, "tokens": 1000, "seconds": 5.0},
    )
    (folder / "config.yaml").write_text(yaml.safe_dump({evil: evil, "model": {"name": evil, evil: evil}}))
    html_report.write(folder)
    page = read(folder)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert page.texts.count(evil) >= 5 and "a<b>&c" in page.texts
    assert run_on(folder)["events"][-1]["ending"] == evil


def test_a_log_of_an_earlier_version_makes_a_page_of_what_there_is(tmp_path: Path) -> None:
    folder = write_log(
        tmp_path / "run", training(10, seconds=7.0), {"event": "valid", "update": 10, "epoch": 1, "loss": 2.0}
    )
    html_report.write(folder)
    page = read(folder)
    assert page.headings() == ["Curves", "Translations", "Cost"] and "0:00:07" in page.texts


def test_a_run_that_goes_on_after_its_end_is_not_finished(tmp_path: Path) -> None:
    end = {"event": "end", "update": 10, "epoch": 1, "ending": "10 updates are made", "tokens": 100, "seconds": 5.0}
    assert RunRecord.read(write_log(tmp_path, training(10), end)).close == end
    record = RunRecord.read(write_log(tmp_path, training(10), end, training(20)))
    assert record.close == {} and record.tokens == 200 and record.update == 20


def test_the_last_value_of_an_update_counts_and_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    folder = write_log(tmp_path, training(10), training(20, loss=9.0), training(20), {**training(30), "loss": None})
    (folder / "log.jsonl").open("a").write('{"event": "tra')
    assert RunRecord.read(folder).curve("train", "loss") == [(10, 2.5), (20, 2.5)]


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no log.jsonl with events"):
        html_report.write(tmp_path)


def test_no_page_is_written_if_none_is_wanted(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(report=ReportConfig(html=False)))
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_page_that_cannot_be_written_is_one_warning(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run" / "report.html").mkdir(parents=True)
    config = tiny_run(report=ReportConfig())
    result = train(replace(config, validation=replace(config.validation, interval_updates=4)))
    assert result.update == 12
    assert len([message for message in caplog.messages if "the HTML report is switched off" in message]) == 1


def test_an_update_that_was_skipped_at_the_end_leaves_the_run_finished(tmp_path: Path) -> None:
    skipped = {"event": "skipped", "update": 11, "epoch": 1, "loss": None, "grad_norm": None}
    end = {"event": "end", "update": 10, "epoch": 1, "ending": "1 epoch done", "tokens": 100, "seconds": 5.0}
    record = RunRecord.read(write_log(tmp_path, training(10), skipped, end))
    assert record.update == 10 and record.close == end


def test_operations_by_time_are_those_of_the_devices_of_each_start(tmp_path: Path) -> None:
    def start(update: int, devices: int, rate: float | None) -> dict[str, Any]:
        return {"event": "start", "update": update, "devices": devices, "device_tflops": rate}

    def operations(first: float | None) -> list[str]:
        events = [start(0, 1, first), training(10, seconds=900.0), start(10, 8, 9.5), training(20, seconds=1000.0)]
        html_report.write(write_log(tmp_path, *events))
        texts = read(tmp_path).texts
        return [text for here in range(len(texts)) if texts[here].startswith("operations") for text in texts[here:][:2]]

    label = "operations estimated: time x 1 x 2 TFLOPS, then 8 x 9.5 TFLOPS"
    assert operations(2.0) == [label, "9.400\u00a0\u00d7\u00a010^15"]  # 900 s x 2e12 + 100 s x 8 x 9.5e12
    assert operations(9.5)[0] == "operations estimated: time x 1 x 9.5 TFLOPS, then 8 x 9.5 TFLOPS"
    assert operations(None) == []


@needs_node
def test_warnings_the_speed_of_the_run_and_where_time_went_are_on_the_page(tmp_path: Path) -> None:
    times = {"computing": 6.0, "reading": 2.0, "validation": 2.0}
    folder = write_log(
        tmp_path / "run",
        training(10, tokens_per_second=50.0, processor_share=0.9),
        {"event": "warning", "update": 15, "epoch": 1, "message": "the model is <worse> than a random guess"},
        training(20, tokens_per_second=200.0, processor_share=0.4, loss=5.13),
        {
            **training(25, tokens_per_second=200.0, loss=4.634),
            "event": "end",
            "tokens": 300,
            "seconds": 9.0,
            "times": times,
        },
    )
    html_report.write(folder)
    page = read(folder)
    texts = page.texts
    assert texts[texts.index("computing") + 1] == "60.0 %"
    run = {**run_on(folder), "process": None, "age": 0}
    speed, alerts = evaluate("[totals(run).speed, alerts(run)]", "run_data.js", run=run)
    assert speed == pytest.approx(300 / 3.0) and alerts == ["update 15: the model is <worse> than a random guess"]
    assert RunRecord.read(folder).training("loss")[-1] == (25, 4.634)
