"""Schedules against their formulas, computed here independently."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
import torch

from nmt.errors import UsageError
from nmt.optim import Horizon, Progress, default_warmup, schedulers
from nmt.optim.schedules import (
    ConstantConfig,
    CosineConfig,
    DecayShape,
    HalvingConfig,
    HalvingUnit,
    InverseSqrtConfig,
    LinearConfig,
    NoamConfig,
    PlateauConfig,
    PolynomialConfig,
    WsdConfig,
    inverse_sqrt,
)


def factors(config: object, horizon: Horizon, updates: list[int]) -> list[float]:
    schedule = schedulers.build(config, horizon)
    return [schedule(Progress(update, epoch=1, tokens=0)) for update in updates]


@pytest.mark.parametrize("name", schedulers.names())
def test_a_factor_is_finite_not_negative_and_depends_on_progress_alone(name: str) -> None:
    config, horizon, updates = (
        schedulers.config_class(name)(),
        Horizon(1000, 64, warmup_updates=99),
        list(range(1, 1100)),
    )
    forward, backward = factors(config, horizon, updates), factors(config, horizon, updates[::-1])
    assert all(math.isfinite(factor) and factor >= 0 for factor in forward)
    assert backward[::-1] == forward


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
    assert factors(LinearConfig(0), Horizon(10, 8), [5]) == pytest.approx([0.5])


@pytest.mark.parametrize(("max_update", "warmup"), [(None, 4000), (100_000, 4000), (2000, 200), (25, 2), (3, 1)])
def test_the_default_warmup_is_a_tenth_of_the_run(max_update: int | None, warmup: int) -> None:
    assert default_warmup(max_update) == warmup


@pytest.mark.parametrize("config", [InverseSqrtConfig(), LinearConfig(), CosineConfig(), PolynomialConfig()])
def test_a_schedule_without_a_warmup_of_its_own_takes_that_of_the_run(config: object) -> None:
    rates = factors(config, Horizon(1000, 8, warmup_updates=30), list(range(1, 60)))
    assert rates.index(max(rates)) + 1 == 30


@dataclass
class WarmsUpForHalf(InverseSqrtConfig):
    """Another rule for the length of the warmup."""

    def warmup_of_run(self, horizon: Horizon) -> int:
        return (horizon.max_update or 0) // 2


def test_a_schedule_with_another_rule_for_its_warmup_overrides_one_method() -> None:
    schedule = inverse_sqrt(WarmsUpForHalf(), Horizon(20, 8))
    rates = [schedule(Progress(update, 1, 0)) for update in range(1, 21)]
    assert rates.index(max(rates)) + 1 == 10


def test_linear_goes_straight_from_the_peak_to_its_end_at_the_last_update() -> None:
    updates = [10, 20, 60, 110, 500]
    assert factors(LinearConfig(10, end=0.2), Horizon(110, 8), updates) == pytest.approx([1.0, 0.92, 0.6, 0.2, 0.2])


def fairseq_polynomial(updates: int, warmup: int, total: int, peak: float, end: float, power: float) -> float:
    """What fairseq's polynomial_decay shows after so many updates."""
    if warmup and updates <= warmup:
        return peak * updates / warmup
    if updates >= total:
        return end
    return (peak - end) * (1 - (updates - warmup) / (total - warmup)) ** power + end


def fairseq_cosine(updates: int, warmup: int, total: int, peak: float, end: float) -> float:
    """fairseq's cosine with one period, which is what its --max-update leaves after the warmup."""
    if updates < warmup:
        return peak * updates / warmup
    return end + (peak - end) * (1 + math.cos(math.pi * (updates - warmup) / (total - warmup))) / 2


def fairseq_inverse_sqrt(updates: int, warmup: int, start: float, peak: float) -> float:
    if updates < warmup:
        return start + updates * (peak - start) / warmup
    return peak * warmup**0.5 * updates**-0.5


@pytest.mark.parametrize("warmup", [0, 1, 7])
@pytest.mark.parametrize(("power", "end"), [(1.0, 0.0), (1.0, 0.01), (2.0, 0.0), (0.5, 0.02)])
def test_polynomial_has_the_rate_that_fairseq_shows_beside_every_update(warmup: int, power: float, end: float) -> None:
    config = PolynomialConfig(warmup, power=power, end_learning_rate=end, total_num_update=40)
    updates = list(range(1, 45))
    found = factors(config, Horizon(100, 8, base_rate=0.05), updates)
    expected = [fairseq_polynomial(update, warmup, 40, 0.05, end, power) for update in updates]
    assert [0.05 * factor for factor in found] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("warmup", [0, 1, 7])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_cosine_has_the_rate_that_fairseq_shows_beside_every_update(warmup: int, share: float) -> None:
    updates = list(range(1, 41))
    found = factors(CosineConfig(warmup, end=share), Horizon(40, 8), updates)
    assert found == pytest.approx([fairseq_cosine(update, warmup, 40, 1.0, share) for update in updates], abs=1e-12)


@pytest.mark.parametrize("start", [0.0, 0.01])
def test_inverse_sqrt_has_the_rate_that_fairseq_shows_beside_every_update(start: float) -> None:
    updates = list(range(1, 60))
    found = factors(InverseSqrtConfig(9, warmup_init_lr=start), Horizon(40, 8, base_rate=0.05), updates)
    expected = [fairseq_inverse_sqrt(update, 9, start, 0.05) for update in updates]
    assert [0.05 * factor for factor in found] == pytest.approx(expected)


@pytest.mark.parametrize(("warmup", "first"), [(0, 0.05), (7, 0.0)])
def test_an_update_of_fairseq_has_the_rate_of_our_update_before_it(warmup: int, first: float) -> None:
    """fairseq's update n has the rate that it shows after n - 1 updates; our last update alone has the end rate."""
    config = PolynomialConfig(warmup, end_learning_rate=0.01, total_num_update=40)
    ours = [0.05 * factor for factor in factors(config, Horizon(40, 8, base_rate=0.05), list(range(1, 41)))]
    fairseq = [fairseq_polynomial(update - 1, warmup, 40, 0.05, 0.01, 1.0) for update in range(1, 41)]
    assert fairseq == pytest.approx([first, *ours[:-1]])
    assert ours[-1] == pytest.approx(0.01)
    assert fairseq[-1] > ours[-1]


@pytest.mark.parametrize("config", [LinearConfig(40), CosineConfig(40), PolynomialConfig(40)])
def test_a_run_that_is_all_warmup_ends_at_its_peak(config: object) -> None:
    assert factors(config, Horizon(40, 8), [20, 40]) == [0.5, 1.0]


def test_the_last_update_of_wsd_still_has_a_rate() -> None:
    assert factors(WsdConfig(10), Horizon(100, 8), [100])[0] > 0.0


def test_cosine_is_half_a_period_from_the_peak_to_its_end_at_the_last_update() -> None:
    updates = [10, 35, 60, 85, 110, 500]
    shares = [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    expected = [0.1 + 0.9 * (1 + math.cos(math.pi * share)) / 2 for share in shares]
    assert factors(CosineConfig(10, end=0.1), Horizon(110, 8), updates) == pytest.approx(expected)


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


def test_polynomial_falls_along_a_power_of_what_is_left_to_the_end_rate() -> None:
    config = PolynomialConfig(10, power=2.0, end_learning_rate=0.01, total_num_update=110)
    updates = [5, 10, 35, 60, 109, 110, 500]
    shares = [0.0, 0.25, 0.5, 0.99, 1.0, 1.0]
    expected = [0.025, *(0.01 + 0.04 * (1 - share) ** 2 for share in shares)]
    found = factors(config, Horizon(None, 8, base_rate=0.05), updates)
    assert [0.05 * factor for factor in found] == pytest.approx(expected)


def test_polynomial_of_power_1_is_linear_and_ends_with_the_run_unless_told() -> None:
    updates = list(range(1, 120))
    one, other = (factors(config, Horizon(100, 8), updates) for config in (PolynomialConfig(10), LinearConfig(10)))
    assert one == pytest.approx(other)


def test_polynomial_without_an_end_asks_for_one() -> None:
    with pytest.raises(UsageError, match="--total-num-update, --max-update or --max-epoch"):
        schedulers.build(PolynomialConfig(), Horizon(None, 8))


def test_a_total_of_polynomial_below_its_warmup_is_refused() -> None:
    with pytest.raises(UsageError, match="scheduler.total_num_update=5 is less than the warmup of 10 updates"):
        PolynomialConfig(10, total_num_update=5)


@pytest.mark.parametrize(
    ("shape", "left"), [(DecayShape.linear, [0.8, 0.5, 0.04]), (DecayShape.one_minus_sqrt, [0.5528, 0.2929, 0.0202])]
)
def test_wsd_climbs_stays_and_decays_in_the_last_share_of_the_run(shape: DecayShape, left: list[float]) -> None:
    """A run of 99 updates decays in its last 24, so a step is a 25th of the way: the 26th update after 75 is the end."""
    config = WsdConfig(10, end=0.2, decay_share=0.242424, shape=shape)
    found = factors(config, Horizon(99, 8), [5, 10, 40, 75, 80, 99, 100, 500])
    assert found[:4] == [0.5, 1.0, 1.0, 1.0]
    assert found[4] == pytest.approx(0.2 + 0.8 * left[0], rel=1e-4)
    assert found[5] == pytest.approx(0.2 + 0.8 * left[2], rel=1e-3)
    assert found[6:] == pytest.approx([0.2, 0.2])
    (half,) = factors(WsdConfig(0, decay_share=0.19, shape=shape), Horizon(99, 8), [90])
    assert half == pytest.approx(left[1], rel=1e-3)


def test_before_the_decay_of_wsd_the_length_of_the_run_does_not_matter() -> None:
    updates = list(range(1, 91))
    shorter, longer = (factors(WsdConfig(10), Horizon(length, 8), updates) for length in (100, 300))
    assert shorter == longer


def test_a_warmup_that_reaches_into_the_decay_of_wsd_is_refused() -> None:
    with pytest.raises(UsageError, match="after update 50 of 100; lower --warmup-updates or --decay-share"):
        schedulers.build(WsdConfig(51, decay_share=0.5), Horizon(100, 8))


def after(config: PlateauConfig, *history: float, higher_is_better: bool = False) -> float:
    schedule = schedulers.build(config, Horizon(None, 8, higher_is_better=higher_is_better))
    return schedule(Progress(update=100, epoch=1, tokens=0, validation=history))


@pytest.mark.parametrize(
    ("history", "shrunk"),
    [
        ((), 0),
        ((3.0,), 0),
        ((3.0, 2.0, 1.0), 0),
        ((3.0, 3.0), 1),
        ((3.0, 4.0, 2.0, 2.5), 2),
        ((2.0, 4.0, 3.0, 2.5), 3),  # each worse than the best, though better than the one before it
        ((2.0, float("nan")), 1),
    ],
)
def test_plateau_shrinks_the_rate_at_each_validation_that_does_not_improve(
    history: tuple[float, ...], shrunk: int
) -> None:
    assert after(PlateauConfig(shrink=0.1), *history) == pytest.approx(0.1**shrunk)


def test_plateau_follows_the_direction_of_the_metric() -> None:
    scores = [20.0, 25.0, 24.0]
    assert after(PlateauConfig(), *scores, higher_is_better=True) == 0.5
    assert after(PlateauConfig(), *scores, higher_is_better=False) == 0.25


@pytest.mark.parametrize(("validations", "shrunk"), [(3, 0), (4, 1), (6, 1), (7, 2)])
def test_plateau_waits_for_its_patience_to_end_and_then_begins_to_wait_again(validations: int, shrunk: int) -> None:
    assert after(PlateauConfig(patience=2), *[1.0] * validations) == 0.5**shrunk


def test_the_patience_of_plateau_agrees_with_torch() -> None:
    draw = random.Random(1)
    history = [draw.choice([1.0, 2.0, 3.0]) - 0.02 * step for step in range(60)]
    optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3, threshold=0.0, eps=0.0)
    for count, value in enumerate(history, 1):
        theirs.step(value)
        assert after(PlateauConfig(patience=3), *history[:count]) == optimizer.param_groups[0]["lr"]
    assert optimizer.param_groups[0]["lr"] <= 0.25


def test_plateau_climbs_first() -> None:
    assert factors(PlateauConfig(4), Horizon(None, 8), [1, 4, 5]) == [0.25, 1.0, 1.0]


@pytest.mark.parametrize("config", [LinearConfig(), CosineConfig(), WsdConfig()])
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
        (PolynomialConfig, {"power": 0.0}),
        (PolynomialConfig, {"end_learning_rate": -1.0}),
        (PolynomialConfig, {"total_num_update": 0}),
        (WsdConfig, {"decay_share": 0.0}),
        (WsdConfig, {"decay_share": 1.1}),
        (WsdConfig, {"end": 1.1}),
        (PlateauConfig, {"shrink": 1.0}),
        (PlateauConfig, {"shrink": 0.0}),
        (PlateauConfig, {"patience": -1}),
    ],
)
def test_impossible_options_are_refused_by_name(config: type, options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"scheduler.{next(iter(options))}="):
        config(**options)


def test_only_noam_sets_the_rate_itself() -> None:
    setting = [name for name in schedulers.names() if getattr(schedulers.config_class(name), "sets_rate", False)]
    assert setting == ["noam"]
