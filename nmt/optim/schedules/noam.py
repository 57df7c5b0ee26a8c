"""The schedule of "Attention Is All You Need", equation 3."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.config.checks import require_positive
from nmt.config.option import option
from nmt.config.roles import SchedulerConfig
from nmt.errors import UsageError
from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.checks import LARGEST_RATE


@dataclass
class NoamConfig(SchedulerConfig):
    """rate = factor * d^-0.5 * min(update^-0.5, update * warmup^-1.5), d being the width of the model."""

    sets_rate = True  # the rate follows from the model's width: --lr has no meaning here

    warmup_updates: int = option(4000, help="updates of the climb to the peak", flag="--warmup-updates")
    factor: float = option(1.0, help="multiplies the rate")

    def __post_init__(self) -> None:
        require_positive("scheduler", warmup_updates=self.warmup_updates, factor=self.factor)
        if self.factor > LARGEST_RATE:
            raise UsageError(f"scheduler.factor={self.factor} must be at most {LARGEST_RATE:g}; the paper's is 1")


@schedulers.register("noam", NoamConfig)
def build(config: NoamConfig, horizon: Horizon) -> Schedule:
    scale = config.factor / math.sqrt(horizon.model_width)
    warmup = float(config.warmup_updates)

    def factor(progress: Progress) -> float:
        update = float(progress.update)
        rate: float = scale * min(1.0 / math.sqrt(update), update * warmup**-1.5)
        return rate

    return factor
