"""The options of the log, the page and the trackers of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nmt.config.checks import require_positive
from nmt.config.common_options import ProgressOption, WatchOptions
from nmt.config.option import flag
from nmt.errors import UsageError


@dataclass(frozen=True)
class Span:
    """``count`` updates from ``first`` on; None: soon after the process begins."""

    first: int | None
    count: int

    @classmethod
    def parse(cls, text: str, option: str) -> Span:
        """Parse ``N`` (the number of updates) or ``FROM:TO`` (both included)."""
        span = re.fullmatch(r"([1-9]\d*)(?::(\d+))?", text.strip())
        if span is None or (span[2] is not None and int(span[2]) < int(span[1])):
            raise UsageError(f"{option}={text} is neither a number of updates nor FROM:TO; give 3 or 100:102")
        if span[2] is None:
            return cls(None, int(span[1]))
        return cls(int(span[1]), int(span[2]) - int(span[1]) + 1)


@dataclass
class ReportConfig(WatchOptions, ProgressOption):
    """The display and the records of training."""

    log_interval: int = flag(50, help="Log interval in updates")
    tensorboard: bool = flag(False, help="Write TensorBoard events to the run folder")
    html: bool = flag(True, help="Write report.html to the run folder at each validation")
    wandb_project: str | None = flag(None, help="Weights & Biases project for the figures; null: none")
    mlflow: str | None = flag(None, help="MLflow experiment for the figures; null: none")
    callbacks: list[str] = flag(
        [], help="Callbacks of plugins that receive the events of the run, comma-separated: NAME or NAME:OPTION=VALUE"
    )
    count_flops: bool = flag(
        True, help="Count the floating-point operations of training on a few sentences at the start"
    )
    device_tflops: float | None = flag(
        None, help="Sustained speed of the device in TFLOPS, for the estimated cost; null: from a table of GPUs"
    )
    profile: str | None = flag(
        None, help="Updates to trace with torch's profiler: their number, or FROM:TO; null: none"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("report", log_interval=self.log_interval, device_tflops=self.device_tflops)
        if self.profile is not None:
            Span.parse(self.profile, "report.profile")
        if self.wandb_project is not None and not self.wandb_project.strip():
            raise UsageError("report.wandb_project is empty; name a project with --wandb-project, or omit it")
        if self.mlflow is not None and not self.mlflow.strip():
            raise UsageError("report.mlflow is empty; name an experiment with --mlflow, or omit it")
