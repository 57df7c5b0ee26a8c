"""The rate shrinks when validation stops improving: Gehring et al. 2017, section 4.2; fairseq's reduce_lr_on_plateau."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.config.checks import require_not_negative
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.improvement import is_better
from nmt.optim.schedules.constant import ConstantConfig
from nmt.optim.schedules.warmup import climb


@dataclass
class PlateauConfig(ConstantConfig):
    """After the warm-up the full rate, times ``shrink`` for each time that patience ended.

    What improves is the best-checkpoint metric, in its own direction.
    """

    uses_validation = True

    shrink: float = option(0.5, help="factor on the rate when validation stops improving", flag="--lr-shrink")
    patience: int = option(
        0, help="validations without improvement that are tolerated; the next shrinks the rate", flag="--lr-patience"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("scheduler", patience=self.patience)
        if not 0.0 < self.shrink < 1.0:
            raise UsageError(f"scheduler.shrink={self.shrink} must lie between 0 and 1 (--lr-shrink 0.5)")


@schedulers.register("plateau", PlateauConfig)
def build(config: PlateauConfig, horizon: Horizon) -> Schedule:
    def factor(progress: Progress) -> float:
        times = plateaus(progress.validation, config.patience, higher_is_better=horizon.higher_is_better)
        rising = progress.update < config.warmup_updates
        return float(config.shrink**times) * (climb(progress.update, config.warmup_updates) if rising else 1.0)

    return factor


def plateaus(history: Sequence[float], patience: int, *, higher_is_better: bool) -> int:
    """How often more than ``patience`` validations in a row were no better than the best before them."""
    best: float | None = None
    times = waited = 0
    for value in history:
        if is_better(value, best, higher_is_better=higher_is_better):
            best, waited = value, 0
            continue
        waited += 1
        if waited > patience:
            times, waited = times + 1, 0
    return times
