"""A trace of a few updates: written whole, and without any effect on the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmt.config.reporting import ReportConfig, Span
from nmt.config.sections import TrainConfig
from nmt.errors import UsageError
from nmt.reporting.resources import Profiler
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train

MakeConfig = Callable[..., TrainConfig]


def profiles(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("profile-*"))


@pytest.mark.parametrize(
    ("text", "span"), [("3", Span(None, 3)), ("100:102", Span(100, 3)), (" 7:7 ", Span(7, 1)), ("2:11", Span(2, 10))]
)
def test_updates_are_a_number_or_from_to(text: str, span: Span) -> None:
    assert Span.parse(text, "report.profile") == span


@pytest.mark.parametrize("text", ["", "0", "-1", "5:4", "0:3", "3:", "a", "1:2:3", "1.5"])
def test_anything_else_is_refused_with_what_to_say(text: str) -> None:
    with pytest.raises(UsageError, match=f"report.profile={text} is neither.* give 3 or 100:102"):
        ReportConfig(profile=text)


@pytest.mark.slow
def test_training_is_bit_for_bit_the_same_with_a_profile_and_the_trace_shows_its_work(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    weights = []
    for traced in ("2:3", None):
        config = tiny_run(report=ReportConfig(log_interval=3, profile=traced))
        folder = tmp_path / f"run-{traced}"
        train(replace(config, checkpoint=replace(config.checkpoint, save_dir=str(folder))))
        weights.append((checkpoints_in(folder)[-1] / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert profiles(tmp_path / "run-2:3") == ["profile-2-3"] and profiles(tmp_path / "run-None") == []
    written = tmp_path / "run-2:3" / "profile-2-3"
    names = [event.get("name") for event in json.loads((written / "trace.json").read_text())["traceEvents"]]
    assert names.count("Optimizer.step#Adam.step") == 2, "two updates, no more"
    assert "aten::mm" in (written / "operators.txt").read_text()


def trace(folder: Path, span: Span, updates: range) -> list[str]:
    profiler = Profiler(span, folder, torch.device("cpu"))
    for update in updates:
        with profiler(update):
            torch.ones(3).sum()
    profiler.close()
    return profiles(folder)


@pytest.mark.parametrize(
    ("span", "updates", "written"),
    [
        (Span(None, 2), range(1, 9), ["profile-3-4"]),
        (Span(None, 2), range(51, 60), ["profile-53-54"]),  # of a run that goes on
        (Span(4, 9), range(1, 6), ["profile-4-5"]),  # training ended before
        (Span(2, 4), range(4, 9), ["profile-4-5"]),  # the run went on in the middle
        (Span(2, 2), range(5, 9), []),
        (Span(20, 2), range(1, 9), []),
    ],
)
def test_the_updates_of_the_span_that_this_process_makes_are_traced(
    tmp_path: Path, span: Span, updates: range, written: list[str]
) -> None:
    assert trace(tmp_path, span, updates) == written


@pytest.mark.parametrize(
    ("span", "updates", "said"),
    [
        (Span(None, 2), range(1, 3), "training ended before update 3; lower the first update of --profile FROM:TO"),
        (Span(100, 3), range(1, 9), "training ended before update 100; lower the first update of --profile FROM:TO"),
        (Span(2, 2), range(5, 9), "training resumed after update 3; raise the first update of --profile FROM:TO"),
        (Span(None, 2), range(0), "training made no update; raise its limit, such as --max-update"),
        (Span(2, 2), range(1, 9), None),
    ],
)
def test_that_nothing_was_traced_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, span: Span, updates: range, said: str | None
) -> None:
    trace(tmp_path, span, updates)
    assert caplog.messages == ([] if said is None else [f"nothing was profiled: {said}"])


def test_a_trace_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert trace(tmp_path / "file", Span(1, 1), range(1, 3)) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "training continues" in caplog.text
