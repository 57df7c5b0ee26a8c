"""Schedules of the learning rate: the options of each, and its factor on the rate as a pure function of progress."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import flag, option
from nmt.config.roles import SchedulerConfig
from nmt.errors import UsageError
from nmt.optim import Horizon, Progress, Schedule, schedulers
from nmt.optim.config import LARGEST_RATE


@dataclass
class WarmupConfig(SchedulerConfig):
    """A schedule that begins with a climb to the peak."""

    warmup_updates: int | None = flag(
        None,
        help="updates of the climb to the peak; null: a tenth of the run, at most 4000, and 4000 if its length is not known",
    )

    def __post_init__(self) -> None:
        if self.warmup_updates is not None and self.warmup_updates < 0:
            raise UsageError(f"scheduler.warmup_updates={self.warmup_updates} must not be negative (--warmup-updates)")

    def warmup(self, horizon: Horizon) -> int:
        """Updates of the warm-up: the option, or what suits the length of the run if it is None."""
        return horizon.warmup_updates if self.warmup_updates is None else self.warmup_updates


@dataclass
class DescentConfig(WarmupConfig):
    """A warm-up, then a descent that ends with the run, whose length must be known."""

    end: float = option(0.0, help="share of the peak that is left at the last update")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.end <= 1.0:
            raise UsageError(f"scheduler.end={self.end} must lie between 0 and 1")


def after_warmup(warmup: int, later: Callable[[int], float], start: float = 0.0) -> Schedule:
    """Linear from ``start`` (before the first update) to 1 (at the last of the warm-up), then ``later(update)``."""

    def factor(progress: Progress) -> float:
        update = progress.update
        return start + (1.0 - start) * update / warmup if update <= warmup else later(update)

    return factor


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


@dataclass
class ConstantConfig(WarmupConfig):
    """The optimizer's own rate throughout, after a warm-up if one is asked for."""

    warmup_updates: int = flag(0, help="updates of the climb to the rate")


@schedulers.register("constant", ConstantConfig)
def constant(config: ConstantConfig, horizon: Horizon) -> Schedule:
    return after_warmup(config.warmup_updates, lambda update: 1.0)


@dataclass
class InverseSqrtConfig(WarmupConfig):
    """rate = peak * update / warmup during the warm-up, then peak * sqrt(warmup / update)."""

    warmup_init_lr: float = flag(0.0, help="rate that the climb starts from")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("scheduler", warmup_init_lr=self.warmup_init_lr)


@schedulers.register("inverse_sqrt", InverseSqrtConfig)
def inverse_sqrt(config: InverseSqrtConfig, horizon: Horizon) -> Schedule:
    warmup = max(1, config.warmup(horizon))  # 0 means: the peak at once
    return after_warmup(warmup, lambda update: math.sqrt(warmup / update), config.warmup_init_lr / horizon.base_rate)


@dataclass
class NoamConfig(SchedulerConfig):
    """rate = factor * d^-0.5 * min(update^-0.5, update * warmup^-1.5), d being the width of the model: "Attention Is All
    You Need", equation 3."""

    sets_rate = True  # the rate follows from the model's width: --lr has no meaning here

    warmup_updates: int = flag(4000, help="updates of the climb to the peak")
    factor: float = option(1.0, help="multiplies the rate")

    def __post_init__(self) -> None:
        require_positive("scheduler", warmup_updates=self.warmup_updates, factor=self.factor)
        if self.factor > LARGEST_RATE:
            raise UsageError(f"scheduler.factor={self.factor} must be at most {LARGEST_RATE:g}; the paper's is 1")


@schedulers.register("noam", NoamConfig)
def noam(config: NoamConfig, horizon: Horizon) -> Schedule:
    scale = config.factor / math.sqrt(horizon.model_width)
    warmup = float(config.warmup_updates)

    def factor(progress: Progress) -> float:
        update = float(progress.update)
        rate: float = scale * min(1.0 / math.sqrt(update), update * warmup**-1.5)
        return rate

    return factor


@dataclass
class LinearConfig(DescentConfig):
    """From the peak in a straight line to its share ``end``."""


@schedulers.register("linear", LinearConfig)
def linear(config: LinearConfig, horizon: Horizon) -> Schedule:
    warmup, last = config.warmup(horizon), required_length(horizon, "linear")
    return after_warmup(warmup, lambda update: 1.0 - (1.0 - config.end) * share_done(update, warmup, last))


@dataclass
class CosineConfig(DescentConfig):
    """From the peak along half a cosine to its share ``end``: Loshchilov and Hutter 2017, arXiv:1608.03983; no restarts."""


@schedulers.register("cosine", CosineConfig)
def cosine(config: CosineConfig, horizon: Horizon) -> Schedule:
    warmup, last = config.warmup(horizon), required_length(horizon, "cosine")

    def descent(update: int) -> float:
        done = share_done(update, warmup, last)
        return config.end + (1.0 - config.end) * 0.5 * (1.0 + math.cos(math.pi * done))

    return after_warmup(warmup, descent)


@dataclass
class PolynomialConfig(WarmupConfig):
    """rate = end + (peak - end) * (1 - share of the descent that is done)^power; from the last update on the end rate.
    It is fairseq's ``polynomial_decay``."""

    power: float = flag(1.0, help="1 is a straight line, 2 falls faster at first")
    end_learning_rate: float = flag(0.0, help="rate of the last update")
    total_num_update: int | None = flag(None, help="update that the way down ends with; null: the last of the run")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("scheduler", power=self.power, total_num_update=self.total_num_update)
        require_not_negative("scheduler", end_learning_rate=self.end_learning_rate)
        if self.total_num_update is not None and (self.warmup_updates or 0) > self.total_num_update:
            raise UsageError(
                f"scheduler.total_num_update={self.total_num_update} is less than the {self.warmup_updates} updates of "
                f"the warm-up; raise --total-num-update or lower --warmup-updates"
            )


@schedulers.register("polynomial", PolynomialConfig)
def polynomial(config: PolynomialConfig, horizon: Horizon) -> Schedule:
    last = config.total_num_update or required_length(
        horizon, "polynomial", "--total-num-update, --max-update or --max-epoch"
    )
    warmup = min(config.warmup(horizon), last)
    end = config.end_learning_rate / horizon.base_rate
    if end > 1.0:
        raise UsageError(
            f"scheduler.end_learning_rate={config.end_learning_rate} is above the peak of {horizon.base_rate}; lower "
            f"--end-learning-rate or raise --lr"
        )

    def descent(update: int) -> float:
        left = 1.0 - share_done(update, warmup, last)
        return float(end + (1.0 - end) * left**config.power)

    return after_warmup(warmup, descent)


class DecayShape(Enum):
    """How much of the peak is left after a share s of the decay: Hägele et al. 2024, arXiv:2405.18392, section 3."""

    linear = "linear"  # 1 - s
    one_minus_sqrt = "one_minus_sqrt"  # 1 - sqrt(s)


@dataclass
class WsdConfig(DescentConfig):
    """A warm-up, the peak rate, and a descent to its share ``end`` in the last ``decay_share`` of the updates: Hu et al.
    2024 (MiniCPM), arXiv:2404.06395, section 4.2.

    A run can be prolonged from a checkpoint of the stable phase, since nothing before the decay depends on where the end is.
    """

    end: float = option(0.0, help="share of the peak that would be left one update after the last")
    decay_share: float = flag(0.1, help="share of the updates that the decay takes")
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
def wsd(config: WsdConfig, horizon: Horizon) -> Schedule:
    warmup, last = config.warmup(horizon), required_length(horizon, "wsd")
    stable = last - round(config.decay_share * last)  # the last update at the peak
    if warmup > stable:
        raise UsageError(
            f"scheduler wsd: the {warmup} updates of the warm-up reach into the decay, which begins after update "
            f"{stable} of {last}; lower --warmup-updates or --decay-share"
        )

    def stable_and_decay(update: int) -> float:
        # Not as in fairseq, which has no such schedule: the last update keeps a rate.
        done = max(0.0, share_done(update, stable, last + 1))
        left = 1.0 - (done if config.shape is DecayShape.linear else math.sqrt(done))
        return config.end + (1.0 - config.end) * left

    return after_warmup(warmup, stable_and_decay)


class HalvingUnit(Enum):
    """What a halving waits for."""

    epoch = "epoch"
    update = "update"


@dataclass
class HalvingConfig(SchedulerConfig):
    """The full rate at first, half of it after ``start`` units, then halved every ``every`` units.

    The defaults are Luong's (Luong et al. 2015, section 4.1): five epochs, then a halving each epoch. GNMT halves by
    updates (Wu et al. 2016, section 8.3).
    """

    unit: HalvingUnit = option(HalvingUnit.epoch, help="what start and every count: epoch or update", flag="--halve-by")
    start: int = option(5, help="epochs or updates before the first halving", flag="--halve-after")
    every: int = option(1, help="epochs or updates between two halvings", flag="--halve-every")

    def __post_init__(self) -> None:
        require_not_negative("scheduler", start=self.start)
        require_positive("scheduler", every=self.every)


@schedulers.register("halving", HalvingConfig)
def halving(config: HalvingConfig, horizon: Horizon) -> Schedule:
    def factor(progress: Progress) -> float:
        done = (progress.epoch if config.unit is HalvingUnit.epoch else progress.update) - 1
        halvings = 0 if done < config.start else 1 + (done - config.start) // config.every
        return float(0.5**halvings)

    return factor


@dataclass
class PlateauConfig(ConstantConfig):
    """After the warm-up the full rate, times ``shrink`` for each time that patience ended: Gehring et al. 2017, section
    4.2; fairseq's ``reduce_lr_on_plateau``. What improves is the best-checkpoint metric, in its own direction.
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
def plateau(config: PlateauConfig, horizon: Horizon) -> Schedule:
    full = constant(config, horizon)

    def factor(progress: Progress) -> float:
        times = plateaus(progress.validation, config.patience, higher_is_better=horizon.higher_is_better)
        return float(config.shrink**times) * full(progress)

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


def is_better(value: float, best: float | None, *, higher_is_better: bool) -> bool:
    """Whether ``value`` improves on ``best`` (None: there is none yet). A value that is no number never does."""
    if not math.isfinite(value):
        return False
    return best is None or (value > best if higher_is_better else value < best)


sys.modules[f"{__name__}.inverse_sqrt"] = sys.modules[__name__]  # an old name (see nmt/old_names.py) inside this file's
