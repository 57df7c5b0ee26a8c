"""The same rate throughout, after a warm-up if one is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.config.roles import SchedulerConfig
from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.schedules.warmup import check_warmup, climb


@dataclass
class ConstantConfig(SchedulerConfig):
    """The optimizer's own rate."""

    warmup_updates: int = option(0, help="updates of the climb to the rate", flag="--warmup-updates")

    def __post_init__(self) -> None:
        check_warmup(self.warmup_updates)


@schedulers.register("constant", ConstantConfig)
def build(config: ConstantConfig, horizon: Horizon) -> Schedule:
    def factor(progress: Progress) -> float:
        return 1.0 if progress.update >= config.warmup_updates else climb(progress.update, config.warmup_updates)

    return factor
