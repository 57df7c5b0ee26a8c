"""The options of nmt-average-checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_device, require_positive
from nmt.config.option import FlagKind, option, user_dir_option
from nmt.config.roles import CommandConfig


@dataclass
class AverageConfig(CommandConfig):
    """nmt-average-checkpoints: several checkpoints in, one without training state out."""

    inputs: list[str] = option([], help="run folder, or checkpoints", flag="--inputs", kind=FlagKind.many)
    output: str = option("", help="folder to write", flag="--output")
    num_update_checkpoints: int | None = option(
        None, help="average the last this many written by updates or minutes", flag="--num-update-checkpoints"
    )
    num_epoch_checkpoints: int | None = option(
        None, help="average the last this many written at an epoch's end", flag="--num-epoch-checkpoints"
    )
    num_best_checkpoints: int | None = option(
        None, help="average this many of the best, by their scores in validation", flag="--num-best-checkpoints"
    )
    metric: str | None = option(
        None, help="what the best are best by: loss, bleu, ...; null: the best-checkpoint metric", flag="--metric"
    )
    checkpoint_upper_bound: int | None = option(
        None, help="leave out checkpoints after this update (or epoch)", flag="--checkpoint-upper-bound"
    )
    validate: bool = option(True, help="measure the average on the validation set too", flag="--validate")
    data: list[str] = option([], help="corpus folders with that set; default: those of the run", flag="--data")
    device: str = option("auto", help="where it is measured: auto, cpu, cuda or cuda:N", flag="--device")
    overwrite: bool = option(False, help="replace an existing output folder", flag="--overwrite")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_device(self.device)
        require_positive("", num_update_checkpoints=self.num_update_checkpoints)
        require_positive("", num_epoch_checkpoints=self.num_epoch_checkpoints)
        require_positive("", num_best_checkpoints=self.num_best_checkpoints)
