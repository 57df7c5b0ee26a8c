"""The rate is halved again and again after a start: Luong et al. 2015, section 4.1; Wu et al. 2016, section 8.3."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import option
from nmt.config.roles import SchedulerConfig
from nmt.optim import Horizon, Progress, Schedule, schedulers


class HalvingUnit(Enum):
    """What a halving waits for."""

    epoch = "epoch"
    update = "update"


@dataclass
class HalvingConfig(SchedulerConfig):
    """The full rate at first, half of it after ``start`` units, then halved every ``every`` units.

    The defaults are Luong's: five epochs, then a halving each epoch.
    """

    unit: HalvingUnit = option(HalvingUnit.epoch, help="what start and every count: epoch or update", flag="--halve-by")
    start: int = option(5, help="epochs or updates before the first halving", flag="--halve-after")
    every: int = option(1, help="epochs or updates between two halvings", flag="--halve-every")

    def __post_init__(self) -> None:
        require_not_negative("scheduler", start=self.start)
        require_positive("scheduler", every=self.every)


@schedulers.register("halving", HalvingConfig)
def build(config: HalvingConfig, horizon: Horizon) -> Schedule:
    def factor(progress: Progress) -> float:
        done = (progress.epoch if config.unit is HalvingUnit.epoch else progress.update) - 1
        halvings = 0 if done < config.start else 1 + (done - config.start) // config.every
        return float(0.5**halvings)

    return factor
