"""Warm-up to the peak, then half a cosine down to the last update: Loshchilov and Hutter 2017, arXiv:1608.03983."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.schedules.warmup import DescentConfig, climb, required_length, share_done, warmup_length


@dataclass
class CosineConfig(DescentConfig):
    """From the peak along half a cosine to its share ``end``; no restarts."""


@schedulers.register("cosine", CosineConfig)
def build(config: CosineConfig, horizon: Horizon) -> Schedule:
    warmup = warmup_length(config.warmup_updates, horizon)
    last = required_length(horizon, "cosine")

    def factor(progress: Progress) -> float:
        if progress.update <= warmup:
            return climb(progress.update, warmup)
        done = share_done(progress.update, warmup, last)
        return config.end + (1.0 - config.end) * 0.5 * (1.0 + math.cos(math.pi * done))

    return factor
