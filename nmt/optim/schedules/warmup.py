"""What schedules share: the warm-up to the peak, and how much of the descent after it is done."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.config.roles import SchedulerConfig
from nmt.errors import UsageError
from nmt.optim import Horizon


@dataclass
class WarmupConfig(SchedulerConfig):
    """A schedule that begins with a climb to the peak."""

    warmup_updates: int | None = option(
        None,
        help="updates of the climb to the peak; null: a tenth of the run, at most 4000, and 4000 if its length is not known",
        flag="--warmup-updates",
    )

    def __post_init__(self) -> None:
        check_warmup(self.warmup_updates)


@dataclass
class DescentConfig(WarmupConfig):
    """A warm-up, then a descent that ends with the run, whose length must be known."""

    end: float = option(0.0, help="share of the peak that is left at the last update")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("end", self.end)


def warmup_length(warmup_updates: int | None, horizon: Horizon) -> int:
    """Updates of the warm-up: the option, or what suits the length of the run if it is None."""
    return horizon.warmup_updates if warmup_updates is None else warmup_updates


def climb(update: int, warmup: int, start: float = 0.0) -> float:
    """The factor during the warm-up: linear from ``start`` (before the first update) to 1 (at the last of them)."""
    return start + (1.0 - start) * update / warmup


def share_done(update: int, warmup: int, last: int) -> float:
    """The share of the descent that is done: 0 at the end of the warm-up, 1 at the last update, as in fairseq.

    fairseq computes this rate after an update, for the next one: its first update has the rate 0, where ours has it at the
    last (unless an end rate is given). All updates that change parameters have the same rates in the same order.
    """
    return 1.0 if update >= last else (update - warmup) / (last - warmup)


def required_length(horizon: Horizon, name: str, flags: str = "--max-update or --max-epoch") -> int:
    """The number of updates, for a schedule that is made for it."""
    if horizon.max_update is None:
        raise UsageError(
            f"scheduler {name} ends at the last update, and neither --stop-time-hours nor a run without a limit says which "
            f"one that is; set {flags}"
        )
    return horizon.max_update


def check_warmup(warmup_updates: int | None) -> None:
    if warmup_updates is not None and warmup_updates < 0:
        raise UsageError(f"scheduler.warmup_updates={warmup_updates} must not be negative (--warmup-updates)")


def check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise UsageError(f"scheduler.{name}={value} must lie between 0 and 1")
