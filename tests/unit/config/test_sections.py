"""Values that no section accepts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nmt.config.preprocessing import FilterConfig
from nmt.config.sampling import CorpusSamplingConfig, Mix
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
        (BatchingConfig, "max_source_tokens"),
        (BatchingConfig, "max_target_tokens"),
        (CorpusSamplingConfig, "temperature"),
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
    with pytest.raises(UsageError, match=f"device.name={name} must be one of auto, cpu, cuda, cuda:N"):
        DeviceConfig(name)


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:10"])
def test_names_of_devices_are_taken(name: str) -> None:
    assert DeviceConfig(name).name == name


def test_a_side_without_a_limit_of_its_own_has_that_of_both() -> None:
    assert BatchingConfig(100).limits == (100, 100)
    assert BatchingConfig(100, max_target_tokens=7).limits == (100, 7)
    assert BatchingConfig(None, max_source_tokens=7).limits == (7, None)
    assert BatchingConfig("auto", batch_size=3).max_tokens == "auto"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_tokens": "auto", "max_source_tokens": 9}, "auto finds one number for both sides; omit --max-source"),
        ({"max_tokens": None}, "set batching.max_tokens"),
        ({"max_padding": 1.0}, "batching.max_padding=1.0 must be at least 0 and less than 1"),
        ({"max_padding": -0.1}, "batching.max_padding=-0.1 must be at least 0"),
    ],
)
def test_batches_without_any_bound_or_with_two_that_contradict_each_other_are_refused(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        BatchingConfig(**options)


def test_stages_are_read_in_every_spelling() -> None:
    config = CorpusSamplingConfig(
        weights=[3, 1], stages=["update 20: 1 0", "  epoch 5:temperature  2.5", "update 30:  all ", "epoch 6: .5 1e1"]
    )
    assert config.is_on and config.first == Mix((3, 1))
    assert [(later.update, later.epoch, later.mix) for later in config.later_mixes()] == [
        (20, None, Mix((1, 0))),
        (None, 5, Mix(temperature=2.5)),
        (30, None, Mix()),
        (None, 6, Mix((0.5, 10))),
    ]
    assert not CorpusSamplingConfig().is_on and CorpusSamplingConfig(stages=["update 2: all"]).is_on


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"weights": [1, 2], "temperature": 5}, r"temperature=5 and sampling.weights=\[1, 2\] exclude each other"),
        ({"weights": [1, -2]}, "sampling.weights: the weight -2 must be"),
        ({"weights": [1, math.nan]}, "the weight nan must be"),
        ({"weights": [0, 0]}, "all weights are 0"),
        ({"stages": ["20: 1 0"]}, "'20: 1 0' is not a stage; write 'update N: MIX' or 'epoch N: MIX'"),
        ({"stages": ["step 20: 1 0"]}, "is not a stage"),
        ({"stages": ["update -5: 1 0"]}, "is not a stage"),
        ({"stages": ["update 20: 1 zero"]}, "'1 zero' in 'update 20: 1 zero' is not a mixture"),
        ({"stages": ["update 20:"]}, "'' in 'update 20:' is not a mixture"),
        ({"stages": ["update 20: temperature"]}, "is not a mixture"),
        ({"stages": ["update 20: temperature 1 2"]}, "is not a mixture"),
        ({"stages": ["update 20: temperature 0"]}, "sampling.stages.temperature=0.0 must be"),
        ({"stages": ["update 20: 0 0"]}, "'update 20: 0 0': all weights are 0"),
        ({"stages": ["update 1: 1 0"]}, "begins too early: training starts with update 1"),
        (
            {"stages": ["epoch 9: 1 0", "update 9: 0 1", "epoch 9: all"]},
            "'epoch 9: all' begins too early: the previous stage does not begin earlier",
        ),
    ],
)
def test_a_mixture_that_is_none_is_refused_in_one_line(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        CorpusSamplingConfig(**options)


def test_more_threads_than_any_processor_has_cores_for_are_refused() -> None:
    assert DeviceConfig(threads=4096).threads == 4096
    with pytest.raises(UsageError, match=r"^device.threads=4097 is more than 4096; omit it for one per core"):
        DeviceConfig(threads=4097)
