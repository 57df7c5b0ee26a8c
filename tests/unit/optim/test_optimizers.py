"""Optimizers against one step of their update rules, computed here independently."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from nmt.config.option import flags_of
from nmt.config.sections import TrainConfig
from nmt.devices.kinds import Accelerator
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.config import AdamConfig, AdamThenSgdConfig, AdamWConfig, NagConfig, RmspropConfig, SgdConfig
from nmt.optim.schedules import NoamConfig
from nmt.optim.torch_optimizers import runs_fused
from nmt.training.loop.optimizer_state import training_mode


def stepped(config: Any, *gradients: float) -> float:
    """A parameter of 1.0 after one update for each gradient."""
    parameter = Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = optimizers.build(config, [{"params": [("weight", parameter)]}])
    for gradient in gradients:
        parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
    return float(parameter.detach())


def adam(rate: float, first: float, second: float, eps: float, gradients: list[float], decay: float = 0.0) -> float:
    """Kingma and Ba, algorithm 1; ``decay`` is decoupled."""
    value, m, v = 1.0, 0.0, 0.0
    for step, gradient in enumerate(gradients, 1):
        value -= rate * decay * value
        m = first * m + (1 - first) * gradient
        v = second * v + (1 - second) * gradient**2
        value -= rate * (m / (1 - first**step)) / ((v / (1 - second**step)) ** 0.5 + eps)
    return value


def test_adam_follows_its_paper() -> None:
    config = AdamConfig(lr=0.1, betas=[0.8, 0.95], eps=1e-3)
    assert stepped(config, 0.5, -2.0, 0.1) == pytest.approx(adam(0.1, 0.8, 0.95, 1e-3, [0.5, -2.0, 0.1]), rel=1e-6)


def test_adam_defaults_to_the_constants_of_the_transformer_paper() -> None:
    assert stepped(AdamConfig(), 0.5, -2.0) == pytest.approx(adam(5e-4, 0.9, 0.98, 1e-9, [0.5, -2.0]), rel=1e-9)


def test_weight_decay_of_adam_is_part_of_the_gradient() -> None:
    assert stepped(AdamConfig(weight_decay=0.5), 0.0) == pytest.approx(adam(5e-4, 0.9, 0.98, 1e-9, [0.5]), rel=1e-9)


def test_weight_decay_of_adamw_is_decoupled_from_the_gradient() -> None:
    config = AdamWConfig(lr=0.1, weight_decay=0.25)
    assert stepped(config, 0.5, 0.7) == pytest.approx(adam(0.1, 0.9, 0.98, 1e-9, [0.5, 0.7], decay=0.25), rel=1e-6)


def test_sgd_goes_down_the_gradient() -> None:
    assert stepped(SgdConfig(lr=0.1), 2.0) == pytest.approx(0.8)
    assert stepped(SgdConfig(lr=0.1, momentum=0.5), 2.0, 2.0) == pytest.approx(1 - 0.2 - 0.3)
    assert stepped(SgdConfig(lr=0.1, momentum=0.5, nesterov=True), 2.0) == pytest.approx(1 - 0.3)


def graves(config: RmspropConfig, gradients: list[float], rates: list[float]) -> float:
    """Graves 2013, equations 38-41."""
    value, n, g, step = 1.0, 0.0, 0.0, 0.0
    for gradient, rate in zip(gradients, rates):
        n = config.decay * n + (1 - config.decay) * gradient**2
        g = config.decay * g + (1 - config.decay) * gradient
        step = config.momentum * step - rate * gradient / (n - g**2 + config.eps) ** 0.5
        value += step
    return value


def stepped_with_rates(config: Any, gradients: list[float], rates: list[float]) -> float:
    """The parameter as above when the schedule gives every update a rate of its own."""
    parameter = Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = optimizers.build(config, [{"params": [("weight", parameter)]}])
    for gradient, rate in zip(gradients, rates):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
    return float(parameter.detach())


def test_rmsprop_is_that_of_graves() -> None:
    config = RmspropConfig(lr=0.1, momentum=0.8, decay=0.7, eps=1e-2)
    gradients, rates = [0.5, -2.0, 0.1, 3.0], [0.1, 0.1, 0.05, 0.2]
    assert stepped_with_rates(config, gradients, rates) == pytest.approx(graves(config, gradients, rates), rel=1e-12)


def test_rmsprop_defaults_to_the_constants_of_its_paper() -> None:
    constants = RmspropConfig(lr=1e-4, momentum=0.9, decay=0.95, eps=1e-4)
    assert stepped(RmspropConfig(), 0.5, -2.0) == pytest.approx(graves(constants, [0.5, -2.0], [1e-4] * 2), rel=1e-12)


def test_rmsprop_survives_a_large_gradient_without_variance() -> None:
    parameter = Parameter(torch.ones(1))
    optimizer = optimizers.build(RmspropConfig(eps=1e-8), [{"params": [("weight", parameter)]}])
    for _ in range(300):
        parameter.grad = torch.full_like(parameter, 1234.567)
        optimizer.step()
        assert parameter.isfinite().all()


def test_weight_decay_of_rmsprop_is_part_of_the_gradient() -> None:
    assert stepped(RmspropConfig(weight_decay=0.5), 0.2) == pytest.approx(stepped(RmspropConfig(), 0.7), rel=1e-12)


def test_nag_makes_the_steps_of_the_published_formula_when_the_rate_changes() -> None:
    gradients, rates = [0.5, -2.0, 0.1, 3.0, 3.0], [0.1, 0.1, 0.05, 0.02, 0.2]
    value, velocity, momentum = 1.0, 0.0, 0.9
    for index, (gradient, rate) in enumerate(zip(gradients, rates)):
        velocity *= rate / rates[index - 1] if index else 1.0
        value += momentum**2 * velocity - (1 + momentum) * rate * gradient
        velocity = momentum * velocity - rate * gradient
    found = stepped_with_rates(NagConfig(momentum=momentum), gradients, rates)
    assert found == pytest.approx(value, rel=1e-12)


def test_adam_then_sgd_makes_so_many_updates_with_adam_and_the_rest_down_the_gradient() -> None:
    config = AdamThenSgdConfig(lr=0.1, sgd_lr=0.5, switch_update=3, betas=[0.8, 0.95], eps=1e-3)
    with_adam = adam(0.1, 0.8, 0.95, 1e-3, [0.5, -2.0, 0.1])
    assert stepped(config, 0.5, -2.0, 0.1) == pytest.approx(with_adam, rel=1e-6)
    assert stepped(config, 0.5, -2.0, 0.1, 0.3, -0.2) == pytest.approx(with_adam - 0.5 * 0.1, rel=1e-6)


def test_adam_then_sgd_can_begin_with_the_descent() -> None:
    assert stepped(AdamThenSgdConfig(switch_update=0, sgd_lr=0.5), 0.2, 0.4) == pytest.approx(1.0 - 0.5 * 0.6)


def test_the_factor_of_a_schedule_applies_to_both_rates_of_adam_then_sgd() -> None:
    config = AdamThenSgdConfig(lr=0.1, sgd_lr=0.5, switch_update=1, eps=1e-12)
    found = stepped_with_rates(config, [3.0, 0.2], [0.05, 0.025])  # factors 1/2 and 1/4
    assert found == pytest.approx(1.0 - 0.05 - 0.25 * 0.5 * 0.2, rel=1e-6)


def test_adam_then_sgd_forgets_the_moments_when_it_switches_and_does_not_go_back() -> None:
    parameter, idle = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    named = [{"params": [("weight", parameter), ("idle", idle)]}]
    optimizer = optimizers.build(AdamThenSgdConfig(switch_update=2), named)
    for number in range(3):
        parameter.grad = torch.ones(2)
        optimizer.step()
        assert ("exp_avg" in optimizer.state[parameter]) == (number < 2)
    assert all(set(state) == {"step"} for state in optimizer.state.values())
    longer = optimizers.build(AdamThenSgdConfig(switch_update=100), named)
    longer.load_state_dict(optimizer.state_dict())
    before = parameter.detach().clone()
    longer.step()
    torch.testing.assert_close(parameter.detach(), before - 0.5)


WITH_PACKAGES = {"schedule_free_adamw": "schedulefree"}
NAMES = [
    name for name in optimizers.names() if name not in WITH_PACKAGES or importlib.util.find_spec(WITH_PACKAGES[name])
]


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_says_which_rate_it_takes_unless_told(name: str) -> None:
    config = optimizers.config_class(name)
    assert config().lr is None and config().base_rate > 0
    assert config(lr=0.25).base_rate == 0.25
    groups = [{"params": [("weight", Parameter(torch.ones(3, 2)))]}, {"params": [("bias", Parameter(torch.ones(2)))]}]
    assert [group["lr"] for group in optimizers.build(config(lr=0.25), groups).param_groups] == [0.25, 0.25]


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_obeys_the_rate_and_the_weight_decay_of_each_group(name: str) -> None:
    """A group of a hundredth of the rate and no decay moves as a parameter trained alone with these options does."""
    config = optimizers.config_class(name)

    def trained(options: Any, groups: list[dict[str, Any]]) -> None:
        optimizer = optimizers.build(options, groups)
        training_mode(optimizer)
        for update in range(3):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.sin(torch.arange(6.0).reshape(3, 2) + update)
            optimizer.step()

    first, second, alone, decayed = (Parameter(torch.full((3, 2), 0.5)) for _ in range(4))
    trained(
        config(lr=0.1, weight_decay=0.3),
        [{"params": [("a", first)]}, {"params": [("b", second)], "lr": 0.001, "weight_decay": 0.0}],
    )
    if name == "adam_then_sgd":  # the ratio of its two rates stays
        trained(config(lr=0.001, weight_decay=0.0, sgd_lr=0.005), [{"params": [("b", alone)]}])
    else:
        trained(config(lr=0.001, weight_decay=0.0), [{"params": [("b", alone)]}])
    trained(config(lr=0.1, weight_decay=0.3), [{"params": [("a", decayed)]}])
    torch.testing.assert_close(second, alone)
    torch.testing.assert_close(first, decayed)
    assert not torch.allclose(first, second)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (AdamConfig, {"lr": 0.0}),
        (AdamConfig, {"lr": float("nan")}),
        (AdamConfig, {"lr": float("inf")}),
        (AdamConfig, {"eps": float("nan")}),
        (AdamWConfig, {"weight_decay": float("inf")}),
        (AdamConfig, {"betas": [0.9]}),
        (AdamConfig, {"betas": [0.9, 1.0]}),
        (AdamConfig, {"eps": -1.0}),
        (AdamWConfig, {"weight_decay": -0.1}),
        (SgdConfig, {"lr": -1.0}),
        (SgdConfig, {"momentum": 1.0}),
        (SgdConfig, {"nesterov": True}),
        (RmspropConfig, {"momentum": 1.0}),
        (RmspropConfig, {"decay": -0.1}),
        (RmspropConfig, {"eps": 0.0}),
        (NagConfig, {"momentum": 0.0}),
        (NagConfig, {"momentum": 1.0}),
        (AdamThenSgdConfig, {"sgd_lr": 0.0}),
        (AdamThenSgdConfig, {"sgd_lr": 1e5}),
        (AdamThenSgdConfig, {"switch_update": -1}),
    ],
)
def test_impossible_options_are_refused_by_name(config: type, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"optimizer.{next(iter(options))}="):
        config(**options)


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("--lr", "optimizer.lr"),
        ("--adam-betas", "optimizer.betas"),
        ("--adam-eps", "optimizer.eps"),
        ("--weight-decay", "optimizer.weight_decay"),
        ("--momentum", "optimizer.momentum"),
        ("--warmup-updates", "scheduler.warmup_updates"),
        ("--warmup-init-lr", "scheduler.warmup_init_lr"),
    ],
)
def test_flags_of_fairseq_users_stand_for_our_options(flag: str, key: str) -> None:
    import nmt.criterions
    import nmt.models
    import nmt.search  # noqa: F401 - the other groups of the command

    assert {known.name: known.key for known in flags_of(TrainConfig)}[flag] == key


@pytest.mark.parametrize(
    "config_class", [AdamConfig, AdamWConfig, SgdConfig, RmspropConfig, NagConfig, AdamThenSgdConfig]
)
@pytest.mark.parametrize("option", ["lr", "weight_decay"])
def test_a_rate_that_overflows_single_precision_is_refused(config_class: type, option: str) -> None:
    assert config_class(**{option: 1e4})
    with pytest.raises(UsageError, match=rf"optimizer\.{option}=1e\+36 must be at most 10000"):
        config_class(**{option: 1e36})


def test_a_factor_of_noam_that_overflows_is_refused() -> None:
    with pytest.raises(UsageError, match=r"scheduler\.factor=1e\+36 must be at most 10000"):
        NoamConfig(factor=1e36)


def test_fused_kernels_are_for_parameters_that_are_all_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that takes no memory stands for the GPU."""
    monkeypatch.setattr(Accelerator, "skips_updates", True)
    here, there = ("a", torch.zeros(1)), ("b", torch.zeros(1, device="meta"))
    numbers = torch.zeros(1, dtype=torch.int64, device="meta")
    assert runs_fused([{"params": [there]}, {"params": [there, there]}]) is True
    assert runs_fused([{"params": [there]}, {"params": [there, here]}]) is None
    assert runs_fused([{"params": [("c", numbers)]}]) is None
