"""Write the events of a run to MLflow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.config.plain import flattened
from nmt.errors import needing
from nmt.reporting.callbacks import FigureSink, RunEvent, stored_id
from nmt.reporting.run_record import RunRecord

LONGEST_VALUE = 500  # characters of a parameter that every server of MLflow takes


class MLflow(FigureSink):
    """Write every figure of an event to a run of an experiment. The run folder stores the id of that run."""

    def __init__(self, folder: Path, experiment: str) -> None:
        self._client: Any = client_class(experiment)()
        self._folder, self._experiment = folder, experiment
        self._writing: Any = None  # what MLflow's thread is sending
        self._run = stored_id(folder / "mlflow.json", {"experiment": experiment}, self._new_run)
        self._client.update_run(self._run, status="RUNNING")

    def _new_run(self) -> str:
        from mlflow.entities import Param

        known = self._client.get_experiment_by_name(self._experiment)
        number = self._client.create_experiment(self._experiment) if known is None else known.experiment_id
        run: str = self._client.create_run(number, run_name=self._folder.resolve().name).info.run_id
        options = flattened(RunRecord.read(self._folder).config)
        self._client.log_batch(run, params=[Param(key, str(options[key])[:LONGEST_VALUE]) for key in options])
        return run

    def write(self, curves: Mapping[str, float | str], update: int) -> None:
        from mlflow.entities import Metric

        self._wait()
        now, metrics = int(1000 * time.time()), []
        for name, value in curves.items():
            if isinstance(value, str):
                self._client.log_text(self._run, value, f"{name}/{update}.md")
            else:
                metrics.append(Metric(name, value, now, update))
        self._writing = self._client.log_batch(self._run, metrics=metrics, synchronous=False)

    def close(self, event: RunEvent) -> None:
        self._wait()
        self._client.set_terminated(self._run, "FINISHED" if event.name == "end" else "FAILED")

    def _wait(self) -> None:
        """Wait for the figures before, which were sent long ago; raise their error."""
        if self._writing is not None:
            self._writing.wait()


def client_class(experiment: str) -> Any:
    """Return the class of MLflow's clients; refuse the option if MLflow is not installed."""
    with needing("mlflow", f"report.mlflow={experiment}"):
        from mlflow import MlflowClient  # fails if a folder has that name
    return MlflowClient
