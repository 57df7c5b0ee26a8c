"""Write the events of a run to TensorBoard, Weights & Biases and the HTML report. A failing sink never ends the run."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.reporting import ReportConfig
from nmt.errors import MissingInputError, UsageError
from nmt.reporting import html_report
from nmt.reporting.run_record import Event, RunRecord
from nmt.storage.files import write_json
from nmt.storage.reading import read_json

logger = logging.getLogger("nmt.training")

SWITCHED_OFF = "%s is switched off, training continues: %s"


class TensorBoard:
    """Write every figure of an event to the curve ``event/figure``."""

    def __init__(self, folder: Path, update: int) -> None:
        """``update``: the run resumes after it; TensorBoard hides later events."""
        self._writer: Any = _tensorboard()(log_dir=str(folder / "tensorboard"), purge_step=update + 1)

    def write(self, event: Event) -> None:
        for name, value in figures(event).items():
            self._writer.add_scalar(name, value, event["update"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Write every figure of an event to a run of a project. The run folder stores the id of that run."""

    def __init__(self, folder: Path, project: str) -> None:
        run: Any = _wandb(project)(
            project=project,
            id=_run_id(folder / "wandb.json", project),
            resume="allow",
            name=folder.resolve().name,
            dir=str(folder),
            config=dict(RunRecord.read(folder).config) or None,
            settings={"console": "off"},  # else it would capture standard error, where the bar is
        )
        run.define_metric("*", step_metric="update")  # a resumed run repeats updates, which wandb's own step cannot
        self._run = run

    def write(self, event: Event) -> None:
        if values := figures(event):
            self._run.log({"update": event["update"], **values})

    def close(self) -> None:
        self._run.finish()


@dataclass
class HtmlReport:
    """Write ``report.html`` from the log at each validation and at the end."""

    folder: Path
    _behind: bool = False

    def write(self, event: Event) -> None:
        self._behind = True
        if event["event"] in ("valid", "end"):
            self.close()

    def close(self) -> None:
        """Write the page if there are new events."""
        if self._behind:
            with contextlib.suppress(MissingInputError):  # the log cannot be written, which was reported
                html_report.write(self.folder)
        self._behind = False


Sink = TensorBoard | WeightsAndBiases | HtmlReport  # receives the events that the log receives, in the same order


class Sinks:
    """All sinks of a run. A sink that fails is switched off with a warning."""

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks = dict(sinks)

    def write(self, event: Event) -> None:
        self._each(lambda sink: sink.write(event))

    def close(self) -> None:
        self._each(lambda sink: sink.close())
        self._sinks.clear()

    def _each(self, action: Callable[[Sink], None]) -> None:
        for name, sink in list(self._sinks.items()):
            try:
                action(sink)
            except Exception as error:  # such as a full disk, a dead writer thread, no network
                logger.warning(SWITCHED_OFF, name, error)
                del self._sinks[name]


def require_sinks(options: ReportConfig) -> None:
    """Refuse sinks whose packages are not installed."""
    if options.tensorboard:
        _tensorboard()
    if options.wandb_project is not None:
        _wandb(options.wandb_project)


def _tensorboard() -> Callable[..., Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "report.tensorboard=true, but TensorBoard is not installed: pip install 'nmt-toolkit[tensorboard]'"
        ) from None
    return SummaryWriter


def _wandb(project: str) -> Callable[..., Any]:
    try:
        from wandb import init  # fails if a folder has that name
    except ImportError:
        raise UsageError(
            f"report.wandb_project={project}, but wandb is not installed: pip install 'nmt-toolkit[wandb]'"
        ) from None
    return init  # type: ignore[no-any-return]


def open_sinks(folder: Path, options: ReportConfig, update: int) -> Sinks:
    """Open the sinks of ``options`` for a run that resumes after ``update``."""
    project = options.wandb_project
    makers: dict[str, Callable[[], Sink]] = {}
    if options.tensorboard:
        makers["TensorBoard"] = lambda: TensorBoard(folder, update)
    if project is not None:
        makers["Weights & Biases"] = lambda: WeightsAndBiases(folder, project)
    if options.html:
        makers["the HTML report"] = lambda: HtmlReport(folder)
    opened: dict[str, Sink] = {}
    for name, make in makers.items():
        try:
            opened[name] = make()
        except UsageError:
            raise
        except Exception as error:
            logger.warning(SWITCHED_OFF, name, error)
    return Sinks(opened)


def figures(event: Event) -> dict[str, float]:
    """Return the figures of an event under the names of their curves."""
    return {f"{event['event']}/{name}": value for name, value in event.items() if isinstance(value, float)}


def _run_id(path: Path, project: str) -> str:
    """Return the id of the run in ``project``; the first start of the run draws it."""
    if path.is_file():
        stored = read_json(path)
        if isinstance(stored, dict) and stored.get("project") == project and isinstance(stored.get("id"), str):
            return str(stored["id"])
    made = secrets.token_hex(4)
    write_json(path, {"project": project, "id": made})
    return made
