"""Warm-up, stable rate, decay: Hu et al. 2024 (MiniCPM), arXiv:2404.06395, section 4.2.

The rate stays at its peak until a last share of the run. A run can be prolonged from a checkpoint of the stable phase,
since nothing before the decay depends on where the end is. Shapes of the decay are those that Hägele et al. 2024,
arXiv:2405.18392, section 3, compare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from nmt.config.option import option
from nmt.errors import UsageError
from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.schedules.warmup import DescentConfig, climb, required_length, share_done, warmup_length


class DecayShape(Enum):
    """How much of the peak is left after a share s of the decay."""

    linear = "linear"  # 1 - s
    one_minus_sqrt = "one_minus_sqrt"  # 1 - sqrt(s)


@dataclass
class WsdConfig(DescentConfig):
    """A warm-up, the peak rate, and a descent to its share ``end`` in the last ``decay_share`` of the updates."""

    end: float = option(0.0, help="share of the peak that would be left one update after the last")
    decay_share: float = option(0.1, help="share of the updates that the decay takes", flag="--decay-share")
    shape: DecayShape = option(
        DecayShape.linear,
        help="of the decay: linear, or one_minus_sqrt, which falls faster at first",
        flag="--decay-shape",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.decay_share <= 1.0:
            raise UsageError(f"scheduler.decay_share={self.decay_share} must be above 0 and at most 1 (--decay-share)")


@schedulers.register("wsd", WsdConfig)
def build(config: WsdConfig, horizon: Horizon) -> Schedule:
    warmup = warmup_length(config.warmup_updates, horizon)
    last = required_length(horizon, "wsd")
    stable = last - round(config.decay_share * last)  # the last update at the peak
    if warmup > stable:
        raise UsageError(
            f"scheduler wsd: the {warmup} updates of the warm-up reach into the decay, which begins after update "
            f"{stable} of {last}; lower --warmup-updates or --decay-share"
        )

    def factor(progress: Progress) -> float:
        if progress.update <= warmup:
            return climb(progress.update, warmup)
        # Not as in fairseq, which has no such schedule: the last update keeps a rate.
        done = max(0.0, share_done(progress.update, stable, last + 1))
        left = 1.0 - (done if config.shape is DecayShape.linear else math.sqrt(done))
        return config.end + (1.0 - config.end) * left

    return factor
