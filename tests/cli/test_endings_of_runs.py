"""What a run says at its start; and the page of a run says how it ended and why, and which updates were skipped."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config.reporting import ReportConfig
from nmt.config.sections import TrainConfig, ValidationConfig
from nmt.errors import DeviceError, Interrupted
from nmt.storage.checkpoints import read_info
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.loop.trainer import Trainer
from nmt.training.loop.validation import LossValidator
from tests.commands import run_copy
from tests.unit.pages.scripts import needs_node, shown

MakeConfig = Callable[..., TrainConfig]

TINY = (
    "model=lstm model.embedding_size=16 model.hidden_size=16 --max-tokens 200 --log-interval 10 --valid-samples 0 "
    "--warmup-updates 5 --clip-norm 0 optimizer=sgd"
).split()
GETS_TOO_FAST = (  # from update 101 on, gradient descent at a rate that is far too large; all losses are finite
    "--optimizer adam_then_sgd --lr 0.02 --switch-update 100 --sgd-lr 300 --lr-scheduler constant --max-update 300 "
    "training.divergence_patience=500 --save-interval-updates 50 --keep-interval-updates 1 "
    "checkpoint.save_interval=null validation.interval=null report.html=false"
).split()
TOO_FAST = (
    "--lr 100 --weight-decay 0.1 --max-update 500 training.max_bad_updates=3".split()
)  # each update: nine times as large


@pytest.fixture(scope="module")
def log_of_diverged(copy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run that diverges of itself, and the lines that it logs."""
    run = tmp_path_factory.mktemp("diverged") / "run"
    result = run_copy("train", copy_corpus, *TINY, *TOO_FAST, "--save-dir", run)
    assert result.returncode == 1
    return run, result.stderr.decode().splitlines()


@pytest.fixture(scope="module")
def diverged(log_of_diverged: tuple[Path, list[str]]) -> tuple[Path, str]:
    """That run, and its last line."""
    run, lines = log_of_diverged
    return run, lines[-1].removeprefix("nmt-train: ")


def test_a_run_says_what_it_is_going_to_do_before_its_first_update(
    copy_corpus: Path, log_of_diverged: tuple[Path, list[str]]
) -> None:
    run, lines = log_of_diverged
    said = [line.rpartition(" | ")[2] for line in lines]
    first = next(number for number, line in enumerate(said) if "update 1" in line or "loss" in line)
    start = said[:first]
    patterns = [
        f"training lstm on {re.escape(str(copy_corpus))}; run folder: {re.escape(str(run))}",
        r"lstm with [\d,]+ parameters, vocabularies of [\d,]+ and [\d,]+ tokens",
        r"\d+ training pairs from \w+ to \w+, \d+ updates? an epoch",
        r"forecast on cpu with \d threads?, .*: 500 updates in .*; [\d.]+ GB of memory, [\d.]+ GB for each checkpoint",
    ]
    matches = [pattern for line in start for pattern in patterns if re.fullmatch(pattern, line)]
    assert matches == patterns, "\n".join(said)


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_a_run_whose_finite_loss_explodes_ends_with_status_1_and_keeps_its_last_good_checkpoint(
    copy_corpus: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = run_copy("train", copy_corpus, *TINY, *GETS_TOO_FAST, "--save-dir", run)
    assert done.returncode == 1 and not events(run, "skipped")
    said = "the model is worse than a random guess .* the last good checkpoint is .*-00000100 .*; a lower --lr"
    assert re.match(f"nmt-train: since update [0-9]+ {said}", done.stderr.decode().splitlines()[-1])
    assert [read_info(path).update for path in checkpoints_in(run)] == [100, 150]
    assert [event["cause"] for event in events(run, "stopped")] == ["diverged"]


@needs_node
def test_the_page_of_a_diverged_run_says_so_in_the_words_of_the_command(diverged: tuple[Path, str]) -> None:
    run, last_line = diverged
    assert re.match(
        "3 updates in a row had a loss or gradient that is not finite; the last good checkpoint is", last_line
    )
    page = shown(run)
    assert page["state"] == "stopped: diverged" and f"stopped: {last_line}" in page["alerts"]


@needs_node
def test_the_page_of_a_diverged_run_shows_each_skipped_update(diverged: tuple[Path, str]) -> None:
    run, _ = diverged
    skipped, page = events(run, "skipped"), shown(run)
    updates = [event["update"] for event in skipped]
    assert len(skipped) >= 3 and page["cards"]["skipped updates"] == str(len(skipped))
    assert [update for update, _ in page["skips"]] == list(dict.fromkeys(updates))
    assert any(f"not finite {len(skipped)} times, last at update {updates[-1]}" in text for text in page["alerts"])


@needs_node
def test_the_page_of_a_run_that_came_to_its_end_shows_no_reason_to_worry(copy_corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert run_copy("train", copy_corpus, *TINY, "--lr", "0.1", "--max-update", "6", "--save-dir", run).returncode == 0
    page = shown(run)
    assert page["state"] == "finished: 6 updates are made" and page["alerts"] == page["skips"] == []
    assert not events(run, "stopped") and "skipped updates" not in page["cards"]


@needs_node
def test_the_page_of_an_interrupted_run_says_how_to_go_on_and_no_more_of_it_when_it_has(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validation = ValidationConfig(interval=None, interval_updates=6, samples=0)
    config = tiny_run(validation=validation, report=ReportConfig())
    validate = LossValidator.__call__

    def interrupted(self: LossValidator, stop: Callable[[], bool]) -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        return validate(self, stop)

    with monkeypatch.context() as patch:
        patch.setattr(LossValidator, "__call__", interrupted)
        with pytest.raises(Interrupted) as caught:
            train(config)
    run = tmp_path / "run"
    page = shown(run)
    why = str(caught.value).removeprefix("stopped ")
    assert page["state"] == "stopped: signal" and page["alerts"] == [f"stopped: {why}"]
    assert "resume with the same command" in str(caught.value)
    train(config)
    page = shown(run)
    assert page["state"] == "finished: 12 updates are made" and page["alerts"] == []


@needs_node
@pytest.mark.parametrize(
    ("error", "state", "why"),
    [
        (MemoryError("no room"), "stopped: out of memory", "MemoryError: no room"),
        (OSError(28, "No space left on device"), "stopped: storage", "OSError: [Errno 28] No space left on device"),
        (DeviceError("the <GPU> is gone"), "stopped: error", "the <GPU> is gone"),
        (ZeroDivisionError("division"), "stopped: error", "ZeroDivisionError: division"),
        (KeyboardInterrupt(), "stopped: signal", "interrupted by a second Ctrl-C, before anything was saved"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_stops_a_run_stands_on_its_page(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, state: str, why: str
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Trainer, "_decide", fails)
    with pytest.raises(type(error)):
        train(tiny_run(report=ReportConfig()))
    page = shown(tmp_path / "run")
    assert page["state"] == state and page["alerts"] == [f"stopped: {why}"]
