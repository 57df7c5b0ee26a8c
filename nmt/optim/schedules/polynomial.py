"""Warm-up to the peak, then a descent to an end rate by a power of the share that is left: fairseq's polynomial_decay."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.schedules.warmup import WarmupConfig, climb, required_length, share_done, warmup_length


@dataclass
class PolynomialConfig(WarmupConfig):
    """rate = end + (peak - end) * (1 - share of the descent that is done)^power; from the last update on the end rate."""

    power: float = option(1.0, help="1 is a straight line, 2 falls faster at first", flag="--power")
    end_learning_rate: float = option(0.0, help="rate of the last update", flag="--end-learning-rate")
    total_num_update: int | None = option(
        None, help="update that the way down ends with; null: the last of the run", flag="--total-num-update"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("scheduler", power=self.power, total_num_update=self.total_num_update)
        require_not_negative("scheduler", end_learning_rate=self.end_learning_rate)
        if self.total_num_update is not None and (self.warmup_updates or 0) > self.total_num_update:
            raise UsageError(
                f"scheduler.total_num_update={self.total_num_update} is less than the {self.warmup_updates} updates of "
                f"the warm-up; raise --total-num-update or lower --warmup-updates"
            )


@schedulers.register("polynomial", PolynomialConfig)
def build(config: PolynomialConfig, horizon: Horizon) -> Schedule:
    last = config.total_num_update or required_length(
        horizon, "polynomial", "--total-num-update, --max-update or --max-epoch"
    )
    warmup = min(warmup_length(config.warmup_updates, horizon), last)
    end = config.end_learning_rate / horizon.base_rate
    if end > 1.0:
        raise UsageError(
            f"scheduler.end_learning_rate={config.end_learning_rate} is above the peak of {horizon.base_rate}; lower "
            f"--end-learning-rate or raise --lr"
        )

    def factor(progress: Progress) -> float:
        if progress.update <= warmup:
            return climb(progress.update, warmup)
        left = 1.0 - share_done(progress.update, warmup, last)
        return float(end + (1.0 - end) * left**config.power)

    return factor
