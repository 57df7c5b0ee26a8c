"""Optimizers, and schedules as pure functions of progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nmt.config.roles import OptimizerConfig, SchedulerConfig
from nmt.registry import Registry, import_all

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Progress:
    """How far training is: all that a schedule may depend on."""

    update: int  # the update about to be made, from 1
    epoch: int  # from 1
    tokens: int  # target tokens seen so far
    validation: tuple[float, ...] = ()  # best-checkpoint metric of each validation under this schedule


@dataclass(frozen=True)
class Horizon:
    """What is known of the run before it starts, handed to a schedule's builder."""

    max_update: int | None  # an estimate, where only the number of epochs is limited
    model_width: int  # `EncoderDecoder.width`
    base_rate: float = 1.0  # the optimizer's rate, which the schedule's factor is applied to
    warmup_updates: int = 4000  # for schedules that are not told their own
    higher_is_better: bool = False  # of the metric in `Progress.validation`


def default_warmup(max_update: int | None) -> int:
    """A tenth of the run, and at most the paper's 4000 updates."""
    return 4000 if max_update is None else max(1, min(4000, max_update // 10))


# A factor on each parameter group's base rate.
Schedule = Callable[[Progress], float]

# What torch's optimizers take: {"params": [(name, parameter), ...]} and, where a group differs from what the optimizer
# does to all, its own "lr" or "weight_decay". nmt.optim.parameter_groups makes them.
ParameterGroups = list[dict[str, Any]]

# Where a group says which rate its last step took, if that is not its "lr".
APPLIED_RATE = "applied_rate"

# builder(config, groups: ParameterGroups) -> Optimizer
optimizers: Registry[torch.optim.Optimizer] = Registry("optimizer", OptimizerConfig)

# builder(config, horizon: Horizon) -> Schedule
schedulers: Registry[Schedule] = Registry("scheduler", SchedulerConfig)

import_all(__name__, __path__, ("config", "schedules"))
