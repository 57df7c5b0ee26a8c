"""Where a run ends that is given no limit, or another one than it began with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nmt.config import sections
from nmt.config.sections import TrainConfig, TrainingConfig, ValidationConfig
from nmt.errors import UsageError
from nmt.optim.schedules import InverseSqrtConfig, LinearConfig
from nmt.training.assemble import train
from nmt.training.setup import announcements

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]


@pytest.fixture
def short_default(monkeypatch: pytest.MonkeyPatch) -> int:
    """A default limit that a test can wait for."""
    for module in (sections, announcements):
        monkeypatch.setattr(module, "DEFAULT_MAX_UPDATE", 6)
    return 6


def test_a_run_without_a_limit_ends_at_the_default_and_says_so(
    tiny_run: MakeConfig, short_default: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    result = train(tiny_run(scheduler=LinearConfig(), training=TrainingConfig()))
    assert (result.update, result.ending) == (short_default, "6 updates are made")
    assert (
        "no limit is given: training ends after 6 updates; set another limit with --max-update, --max-epoch or"
        in caplog.text
    )


def told(config: TrainConfig, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    announcements.tell_limits(config)
    return caplog.text


@pytest.mark.parametrize(
    ("training", "patience", "said"),
    [
        ({}, None, "no limit is given: training ends after 100,000 updates; "),
        ({}, 3, "no limit is given: training ends after 100,000 updates, or earlier by --patience 3; "),
        ({"max_update": 0}, None, "training has no limit and ends when it is stopped"),
        ({"max_update": 0}, 3, "training has no limit and ends by --patience 3, or when it is stopped"),
        ({"max_epoch": 0}, None, "training has no limit and ends when it is stopped"),
        ({"stop_time_hours": 1.0}, None, "the warmup takes 4,000 updates; --warmup-updates sets another number"),
    ],
)
def test_what_nobody_asked_for_is_said(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture, training: dict[str, Any], patience: int | None, said: str
) -> None:
    caplog.set_level("INFO")
    config = tiny_run(training=TrainingConfig(**training), validation=ValidationConfig(patience=patience))
    assert said in told(replace(config, scheduler=InverseSqrtConfig()), caplog)


@pytest.mark.parametrize("training", [{"max_update": 3}, {"max_epoch": 3}, {"max_update": 0, "max_epoch": 3}])
def test_a_run_of_known_length_is_told_nothing(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture, training: dict[str, Any]
) -> None:
    caplog.set_level("INFO")
    config = tiny_run(training=TrainingConfig(**training), scheduler=InverseSqrtConfig())
    assert told(config, caplog) == ""


@pytest.mark.parametrize("training", [{"max_update": 0}, {"stop_time_hours": 1.0}])
def test_a_schedule_that_needs_a_length_is_refused_where_there_is_none(
    tiny_run: MakeConfig, training: dict[str, Any]
) -> None:
    message = "scheduler linear needs the number of updates, which --stop-time-hours .* set --max-update or --max-epoch"
    with pytest.raises(UsageError, match=message):
        train(tiny_run(scheduler=LinearConfig(), training=TrainingConfig(**training)))


def test_a_limit_after_the_default_warns_of_other_rates_and_keeps_the_warmup(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """The warmup of a run of 100,000 updates is longer than the whole of the new one."""
    begun = tiny_run(scheduler=LinearConfig(), training=TrainingConfig())
    length_of_start = replace(begun, training=TrainingConfig(stop_time_hours=1e-9, max_update=100_000))
    assert train(length_of_start).update == 1  # what is planned is as without a limit, and time ends it
    caplog.clear()
    assert train(replace(begun, training=TrainingConfig(max_update=4))).update == 4
    assert "the run keeps its warmup of 4,000 updates but now ends after 4" in caplog.text


def test_going_on_without_the_limit_goes_on_to_the_default(
    tiny_run: MakeConfig, short_default: int, caplog: pytest.LogCaptureFixture
) -> None:
    begun = tiny_run(scheduler=LinearConfig(), training=TrainingConfig(max_update=3))
    train(begun)
    caplog.clear()
    assert train(replace(begun, training=TrainingConfig())).update == short_default
    assert "the run was planned with 3 updates and now has 6: its learning rates follow the new length" in caplog.text


def test_going_on_without_a_known_length_keeps_rates_that_do_not_depend_on_it(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    begun = tiny_run(scheduler=InverseSqrtConfig(), training=TrainingConfig(max_update=3))
    train(begun)
    caplog.clear()
    assert train(replace(begun, training=TrainingConfig(max_update=0, stop_time_hours=1e-9))).update == 3
    assert "learning rates" not in caplog.text and "peak" not in caplog.text
