"""Write the events of a run to TensorBoard, Weights & Biases, MLflow and pages. A failing sink never ends the run."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nmt.config.reporting import ReportConfig
from nmt.errors import MissingInputError, UsageError, needing
from nmt.reporting import html_report
from nmt.reporting.callbacks import METHODS, Callback, FigureSink, RunEvent, stored_id
from nmt.reporting.live_page import LivePage
from nmt.reporting.mlflow import MLflow, client_class
from nmt.reporting.run_record import RunRecord

logger = logging.getLogger("nmt.training")

SWITCHED_OFF = "%s is switched off, training continues: %s"


class TensorBoard(FigureSink):
    """Write every figure of an event to the curve ``event/figure``."""

    def __init__(self, folder: Path, update: int) -> None:
        """``update``: the run resumes after it; TensorBoard hides later events."""
        self._writer: Any = _tensorboard()(log_dir=str(folder / "tensorboard"), purge_step=update + 1)

    def write(self, curves: Mapping[str, float | str], update: int) -> None:
        for name, value in curves.items():
            (self._writer.add_text if isinstance(value, str) else self._writer.add_scalar)(name, value, update)

    def close(self, event: RunEvent) -> None:
        self._writer.close()


class WeightsAndBiases(FigureSink):
    """Write every figure of an event to a run of a project. The run folder stores the id of that run."""

    def __init__(self, folder: Path, project: str) -> None:
        run: Any = _wandb(project)(
            project=project,
            id=stored_id(folder / "wandb.json", {"project": project}, lambda: secrets.token_hex(4)),
            resume="allow",
            name=folder.resolve().name,
            dir=str(folder),
            config=dict(RunRecord.read(folder).config) or None,
            settings={"console": "off"},  # else it would capture standard error, where the bar is
        )
        run.define_metric("*", step_metric="update")  # a resumed run repeats updates, which wandb's own step cannot
        self._run = run

    def write(self, curves: Mapping[str, float | str], update: int) -> None:
        self._run.log({"update": update, **curves})

    def close(self, event: RunEvent) -> None:
        self._run.finish()


class HtmlReport(Callback):
    """Write ``report.html`` from the log at each validation and at the end."""

    def on_validation(self, event: RunEvent) -> None:
        with contextlib.suppress(MissingInputError):  # the log cannot be written, which was reported
            html_report.write(event.folder)

    on_end = on_validation


class Sinks:
    """Callbacks that record a run elsewhere. One that fails is switched off with a warning, and training continues."""

    def __init__(self, sinks: Mapping[str, Callback]) -> None:
        self._sinks = dict(sinks)

    def receive(self, event: RunEvent) -> None:
        for name, sink in list(self._sinks.items()):
            try:
                getattr(sink, METHODS[event.name])(event)
            except Exception as error:  # such as a full disk, a dead writer thread, no network
                logger.warning(SWITCHED_OFF, name, error)
                del self._sinks[name]


def require_sinks(options: ReportConfig) -> None:
    """Refuse sinks whose packages are not installed."""
    if options.tensorboard:
        _tensorboard()
    if options.wandb_project is not None:
        _wandb(options.wandb_project)
    if options.mlflow is not None:
        client_class(options.mlflow)


def _tensorboard() -> Callable[..., Any]:
    with needing("tensorboard", "report.tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter


def _wandb(project: str) -> Callable[..., Any]:
    with needing("wandb", f"report.wandb_project={project}"):
        from wandb import init  # fails if a folder has that name
    return init  # type: ignore[no-any-return]


def open_sinks(folder: Path, options: ReportConfig, update: int) -> Sinks:
    """Open the sinks of ``options`` for a run that resumes after ``update``."""
    project, experiment = options.wandb_project, options.mlflow
    makers: dict[str, Callable[[], Callback] | bool] = {
        "TensorBoard": options.tensorboard and (lambda: TensorBoard(folder, update)),
        "Weights & Biases": project is not None and (lambda: WeightsAndBiases(folder, project)),
        "MLflow": experiment is not None and (lambda: MLflow(folder, experiment)),
        "the HTML report": options.html and HtmlReport,
        "the live page": options.watch and (lambda: LivePage(options.watch_port)),
    }
    opened: dict[str, Callback] = {}
    for name, make in makers.items():
        try:
            if callable(make):
                opened[name] = make()
        except UsageError:
            raise
        except Exception as error:
            logger.warning(SWITCHED_OFF, name, error)
    return Sinks(opened)
