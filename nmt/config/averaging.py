"""The options of nmt-average-checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_device, require_positive
from nmt.config.option import FlagKind, flag, user_dir_option
from nmt.config.roles import CommandConfig


@dataclass
class AverageConfig(CommandConfig):
    """nmt-average-checkpoints: several checkpoints in, one without training state out."""

    inputs: list[str] = flag([], help="run folder, or checkpoints", kind=FlagKind.many)
    output: str = flag("", help="folder to write")
    num_update_checkpoints: int | None = flag(None, help="average the last this many written by updates or minutes")
    num_epoch_checkpoints: int | None = flag(None, help="average the last this many written at an epoch's end")
    num_best_checkpoints: int | None = flag(None, help="average this many of the best, by their scores in validation")
    metric: str | None = flag(None, help="what the best are best by: loss, bleu, ...; null: the best-checkpoint metric")
    checkpoint_upper_bound: int | None = flag(None, help="leave out checkpoints after this update (or epoch)")
    validate: bool = flag(True, help="measure the average on the validation set too")
    data: list[str] = flag([], help="corpus folders with that set; default: those of the run")
    device: str = flag("auto", help="where it is measured: auto, cpu, cuda or cuda:N")
    overwrite: bool = flag(False, help="replace an existing output folder")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_device(self.device)
        require_positive("", num_update_checkpoints=self.num_update_checkpoints)
        require_positive("", num_epoch_checkpoints=self.num_epoch_checkpoints)
        require_positive("", num_best_checkpoints=self.num_best_checkpoints)
