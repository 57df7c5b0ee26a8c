"""Where the events of a run go beside its log. A sink that fails never ends the run."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.sections import ReportConfig
from nmt.errors import MissingInputError, UsageError
from nmt.reporting import html_report
from nmt.reporting.run_record import Event, RunRecord
from nmt.storage.files import read_json, write_json

logger = logging.getLogger("nmt.training")

SWITCHED_OFF = "%s is switched off, training goes on: %s"


class TensorBoard:
    """Every figure of an event as a curve ``event/figure``."""

    def __init__(self, folder: Path, update: int) -> None:
        """``update``: what was written beyond it is hidden; the run goes on from there."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError(
                "report.tensorboard=true, but TensorBoard is not installed: pip install 'nmt-toolkit[tensorboard]'"
            ) from None
        self._writer: Any = SummaryWriter(log_dir=str(folder / "tensorboard"), purge_step=update + 1)

    def write(self, event: Event) -> None:
        for name, value in figures(event).items():
            self._writer.add_scalar(name, value, event["update"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Every figure of an event as a curve over updates, in the project's run whose id the run folder keeps."""

    def __init__(self, folder: Path, project: str) -> None:
        try:
            from wandb import init  # a mere folder of that name has none
        except ImportError:
            raise UsageError(
                f"report.wandb_project={project}, but wandb is not installed: pip install 'nmt-toolkit[wandb]'"
            ) from None
        run: Any = init(
            project=project,
            id=_run_id(folder / "wandb.json", project),
            resume="allow",
            name=folder.resolve().name,
            dir=str(folder),
            config=dict(RunRecord.read(folder).config) or None,
            settings={"console": "off"},  # standard error is ours to draw on
        )
        run.define_metric("*", step_metric="update")  # a run that goes on repeats updates, and wandb's own step may not
        self._run = run

    def write(self, event: Event) -> None:
        if values := figures(event):
            self._run.log({"update": event["update"], **values})

    def close(self) -> None:
        self._run.finish()


@dataclass
class HtmlReport:
    """The page ``report.html``, made anew of the log at each validation and at the end."""

    folder: Path
    _behind: bool = False

    def write(self, event: Event) -> None:
        self._behind = True
        if event["event"] in ("valid", "end"):
            self.close()

    def close(self) -> None:
        """Make the page, if something happened since it was made."""
        if self._behind:
            with contextlib.suppress(MissingInputError):  # the log could not be written, and has said so
                html_report.write(self.folder)
        self._behind = False


Sink = TensorBoard | WeightsAndBiases | HtmlReport  # receives the events that the log receives, in the same order


class Sinks:
    """Several as one. A sink that fails is switched off with a warning."""

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
            except Exception as error:  # a disk that is full, a writer thread that died, no network
                logger.warning(SWITCHED_OFF, name, error)
                del self._sinks[name]


def open_sinks(folder: Path, options: ReportConfig, update: int) -> Sinks:
    """The sinks that ``options`` ask for, of a run that goes on after ``update``."""
    project = options.wandb_project
    asked: dict[str, Callable[[], Sink] | None] = {
        "TensorBoard": (lambda: TensorBoard(folder, update)) if options.tensorboard else None,
        "Weights & Biases": (lambda: WeightsAndBiases(folder, project)) if project is not None else None,
        "the HTML report": (lambda: HtmlReport(folder)) if options.html else None,
    }
    opened: dict[str, Sink] = {}
    for name, make in asked.items():
        try:
            if make is not None:
                opened[name] = make()
        except UsageError:
            raise
        except Exception as error:
            logger.warning(SWITCHED_OFF, name, error)
    return Sinks(opened)


def figures(event: Event) -> dict[str, float]:
    """What of an event can be drawn as a curve."""
    return {f"{event['event']}/{name}": value for name, value in event.items() if isinstance(value, float)}


def _run_id(path: Path, project: str) -> str:
    """The id of this run folder's run in ``project``, made up at its first start."""
    if path.is_file():
        stored = read_json(path)
        if isinstance(stored, dict) and stored.get("project") == project and isinstance(stored.get("id"), str):
            return str(stored["id"])
    made = secrets.token_hex(4)
    write_json(path, {"project": project, "id": made})
    return made
