"""Write the events of a run to MLflow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.config.plain import flattened
from nmt.errors import UsageError
from nmt.reporting.callbacks import FigureSink, RunEvent
from nmt.reporting.run_record import RunRecord
from nmt.storage.files import write_json
from nmt.storage.reading import read_json

LONGEST_VALUE = 500  # characters of a parameter that every server of MLflow takes


class MLflow(FigureSink):
    """Write every figure of an event to a run of an experiment. The run folder stores the id of that run."""

    def __init__(self, folder: Path, experiment: str) -> None:
        self._client: Any = client_class(experiment)()
        known = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if known is None else known.experiment_id
        self._writing: Any = None  # what MLflow's thread is sending
        path = folder / "mlflow.json"
        stored = read_json(path) if path.is_file() else None
        if isinstance(stored, dict) and stored.get("experiment") == experiment and isinstance(stored.get("id"), str):
            self._run: str = stored["id"]
            self._client.update_run(self._run, status="RUNNING")
            return
        self._run = self._client.create_run(number, run_name=folder.resolve().name).info.run_id
        write_json(path, {"experiment": experiment, "id": self._run})
        from mlflow.entities import Param

        options = flattened(RunRecord.read(folder).config)
        self._client.log_batch(self._run, params=[Param(key, str(options[key])[:LONGEST_VALUE]) for key in options])

    def write(self, curves: Mapping[str, float], update: int) -> None:
        from mlflow.entities import Metric

        self._wait()
        metrics = [Metric(name, value, int(1000 * time.time()), update) for name, value in curves.items()]
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
    try:
        from mlflow import MlflowClient  # fails if a folder has that name
    except ImportError:
        raise UsageError(
            f"report.mlflow={experiment}, but MLflow is not installed: pip install 'nmt-toolkit[mlflow]'"
        ) from None
    return MlflowClient
