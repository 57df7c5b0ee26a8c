"""Schedules against their formulas, computed here independently."""

from __future__ import annotations

import math

import pytest

from nmt.errors import UsageError
from nmt.optim import Horizon, Progress, default_warmup, schedulers
from nmt.optim.constant import ConstantConfig
from nmt.optim.cosine import CosineConfig
from nmt.optim.halving import HalvingConfig, HalvingUnit
from nmt.optim.inverse_sqrt import InverseSqrtConfig
from nmt.optim.linear import LinearConfig
from nmt.optim.noam import NoamConfig


def factors(config: object, horizon: Horizon, updates: list[int]) -> list[float]:
    schedule = schedulers.build(config, horizon)
    return [schedule(Progress(update, epoch=1, tokens=0)) for update in updates]


def test_noam_is_equation_3_of_the_paper() -> None:
    updates = [1, 2, 999, 4000, 4001, 100_000]
    expected = [512**-0.5 * min(step**-0.5, step * 4000**-1.5) for step in updates]
    assert factors(NoamConfig(4000), Horizon(None, 512), updates) == pytest.approx(expected, rel=1e-12)


def test_noam_peaks_at_the_end_of_the_warmup() -> None:
    rates = factors(NoamConfig(50), Horizon(None, 64), list(range(1, 200)))
    assert rates.index(max(rates)) + 1 == 50


def test_the_factor_of_noam_multiplies_the_rate() -> None:
    plain, doubled = (factors(NoamConfig(10, factor), Horizon(None, 64), [7])[0] for factor in (1.0, 2.0))
    assert doubled == pytest.approx(2 * plain)


def test_inverse_sqrt_climbs_to_the_peak_and_then_decays_with_the_root() -> None:
    updates = [1, 50, 100, 101, 400, 10_000]
    expected = [update / 100 if update <= 100 else math.sqrt(100 / update) for update in updates]
    assert factors(InverseSqrtConfig(100), Horizon(None, 8), updates) == pytest.approx(expected)


def test_inverse_sqrt_climbs_from_the_initial_rate_in_units_of_the_peak() -> None:
    (factor,) = factors(InverseSqrtConfig(100, warmup_init_lr=0.001), Horizon(None, 8, base_rate=0.005), [25])
    assert 0.005 * factor == pytest.approx(0.001 + 0.25 * (0.005 - 0.001))


def test_a_warmup_of_zero_starts_at_the_peak() -> None:
    assert factors(InverseSqrtConfig(0), Horizon(None, 8), [1, 4]) == pytest.approx([1.0, 0.5])
    assert factors(LinearConfig(0), Horizon(9, 8), [5]) == pytest.approx([0.5])


@pytest.mark.parametrize(("max_update", "warmup"), [(None, 4000), (100_000, 4000), (2000, 200), (25, 2), (3, 1)])
def test_the_default_warmup_is_a_tenth_of_the_run(max_update: int | None, warmup: int) -> None:
    assert default_warmup(max_update) == warmup


@pytest.mark.parametrize("config", [InverseSqrtConfig(), LinearConfig(), CosineConfig()])
def test_a_schedule_without_a_warmup_of_its_own_takes_that_of_the_run(config: object) -> None:
    rates = factors(config, Horizon(1000, 8, warmup_updates=30), list(range(1, 60)))
    assert rates.index(max(rates)) + 1 == 30


def test_linear_goes_straight_from_the_peak_to_its_end_just_after_the_last_update() -> None:
    updates = [10, 20, 60, 110, 500]
    assert factors(LinearConfig(10, end=0.2), Horizon(109, 8), updates) == pytest.approx([1.0, 0.92, 0.6, 0.2, 0.2])


@pytest.mark.parametrize("config", [LinearConfig(10), CosineConfig(10)])
def test_the_last_update_still_has_a_rate(config: object) -> None:
    assert factors(config, Horizon(100, 8), [100])[0] > 0.0


def test_cosine_is_half_a_period_from_the_peak_to_its_end_just_after_the_last_update() -> None:
    updates = [10, 35, 60, 85, 110, 500]
    shares = [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    expected = [0.1 + 0.9 * (1 + math.cos(math.pi * share)) / 2 for share in shares]
    assert factors(CosineConfig(10, end=0.1), Horizon(109, 8), updates) == pytest.approx(expected)


def test_constant_stays_at_the_rate_after_its_warmup() -> None:
    assert factors(ConstantConfig(), Horizon(None, 8), [1, 99]) == [1.0, 1.0]
    assert factors(ConstantConfig(4), Horizon(None, 8), [1, 2, 4, 5]) == [0.25, 0.5, 1.0, 1.0]


def test_halving_by_epochs_follows_luong() -> None:
    schedule = schedulers.build(HalvingConfig(), Horizon(None, 8))
    rates = [schedule(Progress(update=1, epoch=epoch, tokens=0)) for epoch in range(1, 11)]
    assert rates == [1.0] * 5 + [0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_halving_by_updates_waits_for_the_start_and_then_for_each_interval() -> None:
    config = HalvingConfig(HalvingUnit.update, start=1200, every=200)
    updates = [1, 1200, 1201, 1400, 1401, 1600, 1601, 2001]
    assert factors(config, Horizon(None, 8), updates) == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125, 0.03125]


@pytest.mark.parametrize("config", [LinearConfig(), CosineConfig()])
def test_schedules_with_an_end_need_to_know_it(config: object) -> None:
    with pytest.raises(UsageError, match="--max-update"):
        schedulers.build(config, Horizon(None, 8))


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (InverseSqrtConfig, {"warmup_updates": -1}),
        (InverseSqrtConfig, {"warmup_init_lr": -0.1}),
        (NoamConfig, {"warmup_updates": 0}),
        (NoamConfig, {"factor": 0.0}),
        (LinearConfig, {"end": 1.5}),
        (CosineConfig, {"end": -0.5}),
        (ConstantConfig, {"warmup_updates": -1}),
        (HalvingConfig, {"start": -1}),
        (HalvingConfig, {"every": 0}),
    ],
)
def test_impossible_options_are_refused_by_name(config: type, options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"scheduler.{next(iter(options))}="):
        config(**options)


def test_only_noam_sets_the_rate_itself() -> None:
    setting = [name for name in schedulers.names() if getattr(schedulers.config_class(name), "sets_rate", False)]
    assert setting == ["noam"]
