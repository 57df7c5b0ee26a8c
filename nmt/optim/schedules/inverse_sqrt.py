"""Warm-up to the peak, then decay with the inverse square root of the update number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.config.option import option
from nmt.errors import UsageError
from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.schedules.warmup import WarmupConfig, climb, warmup_length


@dataclass
class InverseSqrtConfig(WarmupConfig):
    """rate = peak * update / warmup during the warm-up, then peak * sqrt(warmup / update)."""

    warmup_init_lr: float = option(0.0, help="rate that the climb starts from", flag="--warmup-init-lr")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_init_lr < 0:
            raise UsageError(f"scheduler.warmup_init_lr={self.warmup_init_lr} must not be negative")


@schedulers.register("inverse_sqrt", InverseSqrtConfig)
def build(config: InverseSqrtConfig, horizon: Horizon) -> Schedule:
    warmup = max(1, warmup_length(config.warmup_updates, horizon))  # 0 means: the peak at once
    start = config.warmup_init_lr / horizon.base_rate

    def factor(progress: Progress) -> float:
        if progress.update <= warmup:
            return climb(progress.update, warmup, start)
        return math.sqrt(warmup / progress.update)

    return factor
