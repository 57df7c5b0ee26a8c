"""Learning rate schedules: their options, and their factors as pure functions of progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from nmt.config.checks import require_fraction, require_not_negative, require_positive
from nmt.config.option import flag, option
from nmt.config.roles import SchedulerConfig
from nmt.errors import UsageError, quantity
from nmt.optim import MOST_WARMUP, Horizon, Progress, Schedule, schedulers
from nmt.optim.config import LARGEST_RATE


@dataclass
class WarmupConfig(SchedulerConfig):
    """A schedule with a warmup to the peak learning rate."""

    warmup_updates: int | None = flag(
        None,
        help=f"Warmup updates; null: a tenth of the run, at most {MOST_WARMUP}, or {MOST_WARMUP} if its "
        "length is unknown",
    )

    def __post_init__(self) -> None:
        if self.warmup_updates is not None and self.warmup_updates < 0:
            raise UsageError(f"scheduler.warmup_updates={self.warmup_updates} must not be negative (--warmup-updates)")


@dataclass
class DescentConfig(WarmupConfig):
    """A warmup, then a descent to the end of the run, whose length must be known."""

    end: float = option(0.0, help="Factor on the peak learning rate at the last update")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction("scheduler", "end", self.end, include_zero=True, include_one=True)


def after_warmup(warmup: int, later: Callable[[int], float], start: float = 0.0) -> Schedule:
    """Return a schedule: linear from ``start`` (before update 1) to 1 (at the end of the warmup), then ``later(update)``."""

    def factor(progress: Progress) -> float:
        update = progress.update
        return start + (1.0 - start) * update / warmup if update <= warmup else later(update)

    return factor


def share_done(update: int, warmup: int, last: int) -> float:
    """Return the completed share of the descent: 0 at the end of the warmup, 1 at the last update (fairseq: one update
    later, see docs/how-to/optimizers.md)."""
    return 1.0 if update >= last else (update - warmup) / (last - warmup)


def required_length(config: SchedulerConfig, horizon: Horizon, flags: str = "--max-update or --max-epoch") -> int:
    """Return the number of updates of the run; refuse a run of unknown length. ``flags`` define it."""
    if horizon.max_update is None:
        name = schedulers.name_of(type(config))
        raise UsageError(
            f"scheduler {name} needs the number of updates, which --stop-time-hours or a run without a limit does not "
            f"define; set {flags}"
        )
    return horizon.max_update


@dataclass
class ConstantConfig(WarmupConfig):
    """A constant learning rate, after an optional warmup."""

    warmup_updates: int = flag(0, help="Warmup updates")


@schedulers.register("constant", ConstantConfig)
def constant(config: ConstantConfig, horizon: Horizon) -> Schedule:
    return after_warmup(config.warmup_of_run(horizon), lambda update: 1.0)


@dataclass
class InverseSqrtConfig(WarmupConfig):
    """rate = peak * update / warmup during the warmup, then peak * sqrt(warmup / update)."""

    warmup_init_lr: float = flag(0.0, help="Learning rate before the warmup")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("scheduler", warmup_init_lr=self.warmup_init_lr)


@schedulers.register("inverse_sqrt", InverseSqrtConfig)
def inverse_sqrt(config: InverseSqrtConfig, horizon: Horizon) -> Schedule:
    warmup = max(1, config.warmup_of_run(horizon))  # 0: start at the peak
    return after_warmup(warmup, lambda update: math.sqrt(warmup / update), config.warmup_init_lr / horizon.base_rate)


@dataclass
class NoamConfig(SchedulerConfig):
    """rate = factor * d^-0.5 * min(update^-0.5, update * warmup^-1.5), with model width d: "Attention Is All You
    Need", equation 3."""

    sets_rate = True  # the model's width determines the rate: --lr has no effect

    warmup_updates: int = flag(4000, help="Warmup updates")
    factor: float = option(1.0, help="Factor on the learning rate")

    def __post_init__(self) -> None:
        require_positive("scheduler", warmup_updates=self.warmup_updates, factor=self.factor)
        if self.factor > LARGEST_RATE:
            raise UsageError(f"scheduler.factor={self.factor} must be at most {LARGEST_RATE:g}; the paper's is 1")


@schedulers.register("noam", NoamConfig)
def noam(config: NoamConfig, horizon: Horizon) -> Schedule:
    scale = config.factor / math.sqrt(horizon.model_width)
    warmup = float(config.warmup_of_run(horizon))

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
    warmup, last = config.warmup_of_run(horizon), required_length(config, horizon)
    return after_warmup(warmup, lambda update: 1.0 - (1.0 - config.end) * share_done(update, warmup, last))


@dataclass
class CosineConfig(DescentConfig):
    """Half a cosine from the peak to the factor ``end``: Loshchilov and Hutter 2017, arXiv:1608.03983; no restarts."""


@schedulers.register("cosine", CosineConfig)
def cosine(config: CosineConfig, horizon: Horizon) -> Schedule:
    warmup, last = config.warmup_of_run(horizon), required_length(config, horizon)

    def descent(update: int) -> float:
        done = share_done(update, warmup, last)
        return config.end + (1.0 - config.end) * 0.5 * (1.0 + math.cos(math.pi * done))

    return after_warmup(warmup, descent)


@dataclass
class PolynomialConfig(WarmupConfig):
    """rate = end + (peak - end) * (1 - completed share of the descent)^power: fairseq's ``polynomial_decay``.

    From update ``total_num_update`` on, the rate is the end rate; if the warmup ends there, that update has the peak rate.
    """

    power: float = flag(1.0, help="Exponent of the decay; 1: linear, 2: faster at first")
    end_learning_rate: float = flag(0.0, help="Learning rate from --total-num-update on")
    total_num_update: int | None = flag(None, help="Last update of the decay; null: last update of the run")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("scheduler", power=self.power, total_num_update=self.total_num_update)
        require_not_negative("scheduler", end_learning_rate=self.end_learning_rate)
        if self.total_num_update is not None and (self.warmup_updates or 0) > self.total_num_update:
            raise UsageError(
                f"scheduler.total_num_update={self.total_num_update} is less than the warmup of "
                f"{quantity(self.warmup_updates or 0, 'update')}; raise --total-num-update or lower --warmup-updates"
            )


@schedulers.register("polynomial", PolynomialConfig)
def polynomial(config: PolynomialConfig, horizon: Horizon) -> Schedule:
    last = config.total_num_update or required_length(
        config, horizon, "--total-num-update, --max-update or --max-epoch"
    )
    warmup = min(config.warmup_of_run(horizon), last)
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
    """The factor after a share s of the decay: Hägele et al. 2024, arXiv:2405.18392, section 3."""

    linear = "linear"  # 1 - s
    one_minus_sqrt = "one_minus_sqrt"  # 1 - sqrt(s)


@dataclass
class WsdConfig(DescentConfig):
    """Warmup-stable-decay: a warmup, the peak rate, and a descent to the factor ``end`` in the last ``decay_share`` of the
    updates: Hu et al. 2024 (MiniCPM), arXiv:2404.06395, section 4.2.

    A run can be extended from a checkpoint of the stable phase, which does not depend on the end of the run.
    """

    end: float = option(0.0, help="Factor on the peak learning rate one update after the last")
    decay_share: float = flag(0.1, help="Fraction of the updates in the decay")
    shape: DecayShape = option(
        DecayShape.linear,
        help="Shape of the decay: linear, or one_minus_sqrt (faster at first)",
        flag="--decay-shape",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction(
            "scheduler", "decay_share", self.decay_share, include_zero=False, include_one=True, flag="--decay-share"
        )


@schedulers.register("wsd", WsdConfig)
def wsd(config: WsdConfig, horizon: Horizon) -> Schedule:
    warmup, last = config.warmup_of_run(horizon), required_length(config, horizon)
    stable = last - round(config.decay_share * last)  # the last update at the peak
    if warmup > stable:
        raise UsageError(
            f"scheduler wsd: the warmup of {quantity(warmup, 'update')} overlaps the decay, which begins after update "
            f"{stable} of {last}; lower --warmup-updates or --decay-share"
        )

    def stable_and_decay(update: int) -> float:
        # Unlike in fairseq's schedules, the last update has a positive rate.
        done = max(0.0, share_done(update, stable, last + 1))
        left = 1.0 - (done if config.shape is DecayShape.linear else math.sqrt(done))
        return config.end + (1.0 - config.end) * left

    return after_warmup(warmup, stable_and_decay)


class HalvingUnit(Enum):
    """The unit of a halving schedule."""

    epoch = "epoch"
    update = "update"


@dataclass
class HalvingConfig(SchedulerConfig):
    """The peak rate, halved after ``start`` units and then every ``every`` units.

    The defaults are Luong's (Luong et al. 2015, section 4.1): five epochs, then a halving each epoch. GNMT halves by
    updates (Wu et al. 2016, section 8.3).
    """

    unit: HalvingUnit = option(
        HalvingUnit.epoch, help="Unit of --halve-after and --halve-every: epoch or update", flag="--halve-by"
    )
    start: int = option(5, help="Number of epochs or updates before the first halving", flag="--halve-after")
    every: int = option(1, help="Number of epochs or updates between halvings", flag="--halve-every")

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
    """The peak rate, times ``shrink`` at each plateau of the best-checkpoint metric: Gehring et al. 2017, section 4.2;
    fairseq's ``reduce_lr_on_plateau``.
    """

    uses_validation = True

    shrink: float = option(0.5, help="Factor on the learning rate when validation stops improving", flag="--lr-shrink")
    patience: int = option(
        0,
        help="Number of tolerated validations without improvement; the next one shrinks the learning rate",
        flag="--lr-patience",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("scheduler", patience=self.patience)
        require_fraction(
            "scheduler", "shrink", self.shrink, include_zero=False, include_one=False, flag="--lr-shrink 0.5"
        )


@schedulers.register("plateau", PlateauConfig)
def plateau(config: PlateauConfig, horizon: Horizon) -> Schedule:
    full = constant(config, horizon)

    def factor(progress: Progress) -> float:
        times = plateaus(progress.validation, config.patience, higher_is_better=horizon.higher_is_better)
        return float(config.shrink**times) * full(progress)

    return factor


def plateaus(history: Sequence[float], patience: int, *, higher_is_better: bool) -> int:
    """Count the plateaus: more than ``patience`` consecutive validations without improvement."""
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
    """Whether ``value`` improves on ``best`` (None: no value yet). A non-finite value never does."""
    if not math.isfinite(value):
        return False
    return best is None or (value > best if higher_is_better else value < best)
