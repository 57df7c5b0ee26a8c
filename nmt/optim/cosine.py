"""Warm-up to the peak, then half a cosine down to the last update: Loshchilov and Hutter 2017, arXiv:1608.03983."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.config.option import option
from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.warmup import check_share, check_warmup, climb, required_length, share_done, warmup_length


@dataclass
class CosineConfig:
    """From the peak to its share ``end`` at the last update, which must be known; no restarts."""

    warmup_updates: int | None = option(
        None, help="updates of the climb to the peak; null: a tenth of the run, at most 4000", flag="--warmup-updates"
    )
    end: float = option(0.0, help="share of the peak that is left at the last update")

    def __post_init__(self) -> None:
        check_warmup(self.warmup_updates)
        check_share("end", self.end)


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
