"""Options that cannot be true together are refused by name, all at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pytest

from nmt.config.choices import Strategy
from nmt.config.sections import (
    BatchingConfig,
    CheckpointConfig,
    DistributedConfig,
    TrainConfig,
    TrainingConfig,
    ValidationConfig,
)
from nmt.errors import UsageError
from nmt.optim import optimizers, schedulers
from nmt.optim.config import AdamConfig, AdamThenSgdConfig, MuonConfig, ScheduleFreeAdamWConfig
from nmt.optim.schedules import InverseSqrtConfig, LinearConfig, NoamConfig, PlateauConfig
from nmt.training.setup.contradictions import check

MakeConfig = Callable[..., TrainConfig]


def checked(config: TrainConfig, *, longest: tuple[int, int] | None = (8, 5), max_update: int | None = 12) -> None:
    check(config, longest, max_update)


def test_a_sound_configuration_passes(tiny_run: MakeConfig) -> None:
    checked(tiny_run())


@pytest.mark.parametrize(
    ("changes", "facts", "message"),
    [
        ({"data": []}, {}, "no corpus is given"),
        ({"model": None, "criterion": None}, {}, "no model, no criterion is chosen"),
        ({"search": None, "validation": ValidationConfig(samples=1)}, {}, "validation.samples=0"),
        ({"seed": -1}, {}, "seed=-1"),
        ({"scheduler": InverseSqrtConfig(13)}, {}, "warmup_updates=13 is more than the whole run of 12 updates"),
        ({"scheduler": NoamConfig(4)}, {}, "optimizer.lr=0.01 has no effect"),
        ({"scheduler": NoamConfig(4), "optimizer": AdamThenSgdConfig()}, {}, r"optimizer.sgd_lr=0.5 has no effect"),
        ({"scheduler": LinearConfig(), "optimizer": ScheduleFreeAdamWConfig()}, {}, "--lr-scheduler constant"),
        ({"scheduler": PlateauConfig(), "optimizer": ScheduleFreeAdamWConfig()}, {}, "--lr-scheduler constant"),
        (
            {"scheduler": LinearConfig(), "training": TrainingConfig(stop_time_hours=1.0)},
            {"max_update": None},
            "scheduler linear .*--stop-time-hours .*; set --max-update or --max-epoch",
        ),
        (
            {"scheduler": PlateauConfig(), "validation": ValidationConfig(interval=None, samples=0)},
            {},
            "depends on validations",
        ),
        ({"checkpoint": CheckpointConfig(finetune_map_vocabulary=True)}, {}, "--finetune-from-model"),
        ({"validation": ValidationConfig(interval=None, patience=2, samples=0)}, {}, "validation is switched off"),
        (
            {"training": TrainingConfig(9, clip_norm=5.0, clip_value=10.0)},
            {},
            "clip_norm=5.0 and training.clip_value=10.0",
        ),
        (
            {"optimizer": MuonConfig(), "distributed": DistributedConfig(Strategy.fsdp)},
            {},
            "needs whole matrices.*--distributed-strategy ddp",
        ),
        ({"batching": BatchingConfig(max_tokens=7)}, {}, "max_tokens=7 is less than the 8 tokens"),
    ],
)
def test_each_contradiction_is_refused_by_name(
    tiny_run: MakeConfig, changes: dict[str, Any], facts: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        checked(tiny_run(**changes), **facts)


@pytest.mark.parametrize(
    "changes",
    [
        {"scheduler": InverseSqrtConfig(12)},
        {"scheduler": NoamConfig(4), "optimizer": AdamConfig()},
        {"batching": BatchingConfig(max_tokens=8)},
        {"batching": BatchingConfig(max_tokens=7, skip_long=True)},
        {"batching": BatchingConfig(max_tokens=None, batch_size=2)},
        {"training": TrainingConfig(stop_time_hours=1.0, clip_value=10.0)},
        {"validation": ValidationConfig(interval=None, interval_updates=5, patience=2, samples=0)},
    ],
)
def test_what_is_just_possible_passes(tiny_run: MakeConfig, changes: dict[str, Any]) -> None:
    checked(tiny_run(**changes))


@dataclass
class ForeignOptimizerConfig:
    """A plug-in's, written without the base class of its role."""

    lr: float | None = None
    base_rate: ClassVar[float] = 0.5


@dataclass
class ForeignScheduleConfig:
    """Likewise, with a fact that it states by its name."""

    sets_rate: ClassVar[bool] = True


@pytest.fixture
def foreign(tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> MakeConfig:
    for registry in (optimizers, schedulers):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    optimizers.register("foreign", ForeignOptimizerConfig)(lambda config, groups: None)
    schedulers.register("foreign", ForeignScheduleConfig)(lambda config, horizon: lambda progress: horizon.base_rate)
    return partial(tiny_run, scheduler=ForeignScheduleConfig())


def test_components_of_a_plugin_without_the_base_of_their_role_pass(foreign: MakeConfig) -> None:
    checked(foreign(optimizer=ForeignOptimizerConfig()))


def test_what_they_state_themselves_counts(foreign: MakeConfig) -> None:
    with pytest.raises(UsageError, match="^optimizer.lr=0.1 has no effect"):
        checked(foreign(optimizer=ForeignOptimizerConfig(lr=0.1)))


def test_a_length_in_epochs_is_one_although_its_updates_are_counted_later(tiny_run: MakeConfig) -> None:
    config = tiny_run(scheduler=LinearConfig(), training=TrainingConfig(max_epoch=3))
    checked(config, max_update=None)


def test_several_contradictions_come_in_one_message(tiny_run: MakeConfig) -> None:
    config = replace(tiny_run(), seed=-1, batching=BatchingConfig(max_tokens=7), scheduler=InverseSqrtConfig(13))
    with pytest.raises(UsageError, match=r"^\(1\) seed=-1 .*; \(2\) .*warmup_updates=13 .*; \(3\) .*max_tokens=7"):
        checked(config)
