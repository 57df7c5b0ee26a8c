"""Warm-up to the peak, then a straight line down to the last update."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.schedules.warmup import DescentConfig, climb, required_length, share_done, warmup_length


@dataclass
class LinearConfig(DescentConfig):
    """From the peak in a straight line to its share ``end``."""


@schedulers.register("linear", LinearConfig)
def build(config: LinearConfig, horizon: Horizon) -> Schedule:
    warmup = warmup_length(config.warmup_updates, horizon)
    last = required_length(horizon, "linear")

    def factor(progress: Progress) -> float:
        if progress.update <= warmup:
            return climb(progress.update, warmup)
        return 1.0 - (1.0 - config.end) * share_done(progress.update, warmup, last)

    return factor
