"""Optimizers, and schedules as pure functions of progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.config.roles import OptimizerConfig, SchedulerConfig
from nmt.registry import CONFIG, Registry, import_all

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Progress:
    """The progress of training, the input of a schedule."""

    update: int  # the next update, from 1
    epoch: int  # from 1
    tokens: int  # target tokens so far
    validation: tuple[float, ...] = ()  # best-checkpoint metric of each validation under this schedule


MOST_WARMUP = 4000  # updates of the default warmup: the warmup of "Attention Is All You Need", section 5.3


@dataclass(frozen=True)
class Horizon:
    """Properties of the run that a schedule's builder receives."""

    # Of `number_of_updates`: an estimate if only epochs are limited; None: unknown, as with --stop-time-hours alone
    max_update: int | None
    model_width: int  # `EncoderDecoder.width`
    base_rate: float = 1.0  # the optimizer's learning rate, times which the factor is applied
    warmup_updates: int = MOST_WARMUP  # used if the option `warmup_updates` is null; a resumed run keeps its value
    higher_is_better: bool = False  # for the metric in `Progress.validation`


def default_warmup(max_update: int | None) -> int:
    """Return a tenth of the run, at most ``MOST_WARMUP``."""
    return MOST_WARMUP if max_update is None else max(1, min(MOST_WARMUP, max_update // 10))


# A factor on each parameter group's base rate.
Schedule = Callable[[Progress], float]

# The argument of torch's optimizers: {"params": [(name, parameter), ...]}, with "lr" and "weight_decay" if they differ from
# the optimizer's, and with "rule" if the optimizer has several update rules. nmt.optim.parameter_groups builds them.
ParameterGroups = list[dict[str, Any]]

# The key of a group with the learning rate of the last step, if it differs from "lr".
APPLIED_RATE = "applied_rate"

# builder(config, groups: ParameterGroups) -> Optimizer
optimizers: Registry[torch.optim.Optimizer] = Registry("optimizer", OptimizerConfig)

# builder(config, horizon: Horizon) -> Schedule
schedulers: Registry[Schedule] = Registry("scheduler", SchedulerConfig)

# Only files without torch: options of optimizers, and schedules. A schedule in a file with another ending stays unknown, so
# name the file one_cycle_schedule.py, not one_cycle.py.
import_all(__name__, __path__, (CONFIG, "schedule", "schedules"))
