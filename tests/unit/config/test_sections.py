"""Values that no section accepts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nmt.config.preprocessing import FilterConfig
from nmt.config.sections import DEFAULT_MAX_UPDATE, BatchingConfig, DeviceConfig, TrainingConfig
from nmt.errors import UsageError


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1])
@pytest.mark.parametrize(
    ("config", "name"),
    [
        (FilterConfig, "max_ratio"),
        (TrainingConfig, "clip_norm"),
        (TrainingConfig, "clip_value"),
        (TrainingConfig, "max_update"),
        (TrainingConfig, "max_epoch"),
        (TrainingConfig, "stop_time_hours"),
        (BatchingConfig, "max_tokens"),
    ],
)
def test_a_negative_or_not_finite_number_is_refused_by_name(config: Any, name: str, value: float) -> None:
    with pytest.raises(UsageError, match=rf"\.{name}={value} must be a finite number"):
        config(**{name: value})


def test_without_a_limit_training_has_the_default_one() -> None:
    assert TrainingConfig().takes_default_limit and TrainingConfig().last_update == DEFAULT_MAX_UPDATE == 100_000


@pytest.mark.parametrize(
    ("given", "last_update"),
    [
        ({"max_update": 5}, 5),
        ({"max_update": 5, "max_epoch": 2}, 5),
        ({"max_epoch": 2}, None),
        ({"stop_time_hours": 0.5}, None),
        ({"max_update": 0}, None),
        ({"max_update": 0, "max_epoch": 2}, None),
    ],
)
def test_any_limit_takes_the_place_of_the_default_and_so_does_none(given: dict[str, Any], last_update: object) -> None:
    config = TrainingConfig(**given)
    assert not config.takes_default_limit and config.last_update == last_update


@pytest.mark.parametrize("name", ["max_epoch", "stop_time_hours"])
def test_zero_epochs_or_hours_are_no_limit(name: str) -> None:
    """Neither of that kind nor, where nothing else is said, the default one."""
    alone = TrainingConfig(**{name: 0})
    assert alone == TrainingConfig(max_update=0) and alone.last_update is None
    assert getattr(TrainingConfig(**{name: 0, "max_update": 3}), name) is None


def test_a_norm_of_zero_is_accepted() -> None:
    assert TrainingConfig(clip_norm=0).clip_norm == 0


@pytest.mark.parametrize("name", ["tpu", "", "CUDA", "cuda:", "cuda:-1", "cuda:007", "cuda:1x"])
def test_what_is_no_name_of_a_device_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"device.name={name} is none of auto, cpu, cuda, cuda:N"):
        DeviceConfig(name)


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:10"])
def test_names_of_devices_are_taken(name: str) -> None:
    assert DeviceConfig(name).name == name
