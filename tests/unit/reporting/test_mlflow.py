"""Figures in MLflow: with a stand-in for the package, and at night with the package itself."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from nmt.config.choices import ProgressStyle
from nmt.config.reporting import ReportConfig
from nmt.errors import UsageError
from nmt.reporting.figures import UpdateReport
from nmt.reporting.reporter import Reporter

OPTIONS = ReportConfig(mlflow="translation", log_interval=1, progress=ProgressStyle.none, html=False)


class Server:
    """What MlflowClient does, in memory; the connection may break."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.experiments: list[str] = []
        self.breaks = False

    def __call__(self) -> Server:
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        self.experiments.append(name)
        return name

    def create_run(self, experiment: str, run_name: str) -> Any:
        run = f"{experiment}-{len(self.runs)}"
        self.runs[run] = {"name": run_name, "status": "RUNNING", "params": {}, "metrics": []}
        return SimpleNamespace(info=SimpleNamespace(run_id=run))

    def update_run(self, run: str, status: str) -> None:
        self.runs[run]["status"] = status

    set_terminated = update_run

    def log_batch(self, run: str, metrics: Any = (), params: Any = (), synchronous: bool = True) -> Any:
        self.runs[run]["params"] |= dict(params)
        self.runs[run]["metrics"] += [(name, value, step) for name, value, _, step in metrics]
        return self

    def log_text(self, run: str, text: str, file: str) -> None:
        self.runs[run]["params"][file] = text

    def wait(self) -> None:
        if self.breaks:
            raise ConnectionError("no route to host")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    package, entities, server = types.ModuleType("mlflow"), types.ModuleType("mlflow.entities"), Server()
    for name in ("Metric", "Param"):
        setattr(entities, name, lambda *values: values)
    package.MlflowClient = server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return server


def trained(folder: Path, options: ReportConfig = OPTIONS, first: int = 1, ends: bool = True) -> None:
    """A run of two updates and a validation."""
    reporter = Reporter(folder, options, total_updates=None)
    reporter.start(first - 1, {})
    for update in (first, first + 1):
        reporter.update(update, 1, UpdateReport(loss=update, denominator=1.0, tokens=1), seconds=1.0)
    reporter.warned(first + 1, 1, "the loss rises")
    reporter.valid(first + 1, 1, {"loss": 2.0, "bleu": 30.0}, best=True)
    if ends:
        reporter.end(first + 1, 1, ending="all done", tokens=2, seconds=2.0)
    else:
        reporter.stopped(MemoryError(), update=first + 1, epoch=1, tokens=2, seconds=2.0)


def test_a_run_has_options_figures_and_status_and_resumes_in_the_same_run(tmp_path: Path, server: Server) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model": {"name": "lstm", "dropout": 0.1}}))
    trained(tmp_path, ends=False)
    (run,) = server.runs.values()
    assert run["name"] == tmp_path.name and run["status"] == "FAILED"
    assert run["params"] == {"model.name": "lstm", "model.dropout": "0.1", "warning/2.md": "the loss rises"}
    assert {("train/loss", 1.0, 1), ("train/loss", 2.0, 2), ("valid/bleu", 30.0, 2)} <= set(run["metrics"])
    trained(tmp_path, first=3)
    assert [run["status"] for run in server.runs.values()] == ["FINISHED"] and ("train/loss", 4.0, 4) in run["metrics"]
    trained(tmp_path, ReportConfig(mlflow="another", progress=ProgressStyle.none, html=False))
    assert list(server.runs) == ["translation-0", "another-1"]


def test_a_broken_connection_is_one_warning(tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.breaks = True
    trained(tmp_path)
    assert [message for message in caplog.messages if "MLflow" in message] == [
        "MLflow is switched off, training continues: no route to host"
    ]


def test_an_mlflow_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError, match=r"mlflow=translation.*pip install 'nmt-toolkit\[mlflow\]'"):
        trained(tmp_path)


def test_an_empty_experiment_is_refused() -> None:
    with pytest.raises(UsageError, match="mlflow is empty"):
        ReportConfig(mlflow=" ")


@pytest.mark.nightly
def test_the_real_mlflow_keeps_the_figures_of_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/store")  # the light package has no other store
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({"seed": 7, "text": "x" * 9000}))
    trained(folder, ends=False)
    trained(folder, first=3)
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("translation").experiment_id])
    assert run.data.params["seed"] == "7" and run.info.status == "FINISHED"
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(metric.step, metric.value) for metric in losses] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert run.data.metrics["valid/bleu"] == 30.0
    assert [file.path for file in client.list_artifacts(run.info.run_id, "warning")] == ["warning/2.md", "warning/4.md"]
