"""Places beside the log that receive the events of a run."""

from __future__ import annotations

import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.config.choices import ProgressStyle
from nmt.config.reporting import ReportConfig
from nmt.errors import UsageError
from nmt.reporting.callbacks import Callback, RunEvent
from nmt.reporting.figures import UpdateReport
from nmt.reporting.reporter import Reporter, Sample
from nmt.reporting.sinks import Sinks

QUIET = ProgressStyle.none
TOTALS = {"tokens": 7, "seconds": 1.0}


class Kept(Callback):
    """Keeps what it receives, until it breaks."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.events: list[RunEvent] = []
        self._breaks_at = breaks_at

    def on_update(self, event: RunEvent) -> None:
        self.events.append(event)
        if len(self.events) == self._breaks_at:
            raise OSError("the wire is cut")


def test_a_sink_that_fails_is_switched_off_with_one_warning_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, whole = Kept(breaks_at=1), Kept()
    sinks = Sinks({"the broken one": broken, "the whole one": whole})
    for _ in range(3):
        sinks.receive(RunEvent("update", Path(), 1, 1, {"loss": 2.5, "tokens": 7}))
    assert (len(broken.events), len(whole.events)) == (1, 3)
    assert caplog.messages == ["the broken one is switched off, training continues: the wire is cut"]


def start(folder: Path, options: ReportConfig) -> Reporter:
    reporter = Reporter(folder, options, total_updates=None)
    reporter.start(0)
    return reporter


def report_trouble(reporter: Reporter) -> None:
    """A skipped update, a warning, and the samples of a validation."""
    reporter.skipped(3, 1, UpdateReport(loss=math.nan), number=2)
    reporter.warned(3, 1, "the loss rises")
    reporter.samples([Sample("rot", "red", "blue")])
    reporter.valid(3, 1, {}, best=False)


def test_tensorboard_gets_figures_and_texts(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    reporter = start(tmp_path, ReportConfig(tensorboard=True, progress=QUIET))
    report_trouble(reporter)
    reporter.valid(1, 1, {"loss": 2.0, "bleu": 3.0}, best=True)
    reporter.end(1, 1, ending="all done", **TOTALS)
    (written,) = (tmp_path / "tensorboard").iterdir()
    content = written.read_bytes()
    assert b"valid/bleu" in content and b"valid/loss" in content and b"valid/update" not in content
    assert b"skipped/number" in content and b"the loss rises" in content and b"- hypothesis: blue" in content


def test_tensorboard_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt-toolkit\[tensorboard\]'"):
        start(tmp_path, ReportConfig(tensorboard=True))


class FakeRun:
    """What wandb.init returns."""

    def __init__(self, options: dict[str, Any], fails: bool) -> None:
        self.options = options
        self.metrics: list[tuple[str, str]] = []
        self.logged: list[dict[str, Any]] = []
        self.finished = False
        self._fails = fails

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.metrics.append((name, step_metric))

    def log(self, values: dict[str, Any]) -> None:
        if self._fails:
            raise ConnectionError("no route to host")
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


class FakeWandb(types.ModuleType):
    """The package, with a network that may be down."""

    def __init__(self, *, init_fails: bool = False, log_fails: bool = False) -> None:
        super().__init__("wandb")
        self.runs: list[FakeRun] = []
        self._init_fails, self._log_fails = init_fails, log_fails

    def init(self, **options: Any) -> FakeRun:
        if self._init_fails:
            raise TimeoutError("the server does not answer")
        self.runs.append(FakeRun(options, self._log_fails))
        return self.runs[-1]


def install(monkeypatch: pytest.MonkeyPatch, **faults: bool) -> FakeWandb:
    wandb = FakeWandb(**faults)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return wandb


WANDB = ReportConfig(wandb_project="translation", progress=QUIET)


def test_wandb_gets_the_figures_over_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = install(monkeypatch)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"seed": 7}))
    reporter = start(tmp_path, WANDB)
    reporter.valid(12, 1, {"loss": 2.0, "bleu": 3.0}, best=True)
    reporter.checkpoint(12, 1, tmp_path / "checkpoint")  # has no figures
    reporter.end(12, 1, ending="all done", **TOTALS)
    (run,) = wandb.runs
    assert run.logged[0] == {"update": 12, "valid/loss": 2.0, "valid/bleu": 3.0}
    assert run.logged[1].keys() <= {"update", "end/seconds", "end/processor_share"}
    assert run.metrics == [("*", "update")] and run.finished
    assert run.options["project"] == "translation" and run.options["name"] == tmp_path.name
    assert run.options["config"] == {"seed": 7}


def test_wandb_gets_skipped_updates_warnings_and_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = install(monkeypatch)
    report_trouble(start(tmp_path, WANDB))
    assert wandb.runs[0].logged == [
        {"update": 3, "skipped/number": 2.0},
        {"update": 3, "warning": "the loss rises"},
        {"update": 3, "samples": "- source: rot\n- reference: red\n- hypothesis: blue"},
    ]


def test_a_run_that_goes_on_goes_on_in_the_same_run_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = install(monkeypatch)
    for _ in range(2):
        start(tmp_path, WANDB).close()
    start(tmp_path, ReportConfig(wandb_project="another", progress=QUIET)).close()
    first, second, other = (run.options for run in wandb.runs)
    assert first["id"] == second["id"] != other["id"] and first["resume"] == "allow"
    assert json.loads((tmp_path / "wandb.json").read_text()) == {"project": "another", "id": other["id"]}


@pytest.mark.parametrize(("fault", "said"), [("init_fails", "does not answer"), ("log_fails", "no route to host")])
def test_wandb_without_a_network_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str, said: str
) -> None:
    install(monkeypatch, **{fault: True})
    reporter = start(tmp_path, WANDB)
    for update in (1, 2):
        reporter.valid(update, 1, {"loss": 2.0}, best=False)
    reporter.close()
    assert len([message for message in caplog.messages if said in message]) == 1
    assert "Weights & Biases is switched off, training continues" in caplog.text
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2


def test_a_wandb_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"wandb_project=translation.*pip install 'nmt-toolkit\[wandb\]'"):
        start(tmp_path, WANDB)


def test_an_empty_project_is_refused() -> None:
    with pytest.raises(UsageError, match="wandb_project is empty"):
        ReportConfig(wandb_project=" ")
