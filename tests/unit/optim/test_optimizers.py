"""Optimizers against one step of their update rules, computed here independently."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import Parameter

from nmt.config.option import flags_of
from nmt.config.sections import TrainConfig
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.adam import AdamConfig
from nmt.optim.adamw import AdamWConfig
from nmt.optim.noam import NoamConfig
from nmt.optim.sgd import SgdConfig


def stepped(config: Any, *gradients: float) -> float:
    """A parameter of 1.0 after one update for each gradient."""
    parameter = Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = optimizers.build(config, [("weight", parameter)])
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


@pytest.mark.parametrize("name", optimizers.names())
def test_every_optimizer_says_which_rate_it_takes_unless_told(name: str) -> None:
    config = optimizers.config_class(name)
    assert config().lr is None and config().base_rate > 0
    assert config(lr=0.25).base_rate == 0.25
    (group,) = optimizers.build(config(lr=0.25), [("weight", Parameter(torch.ones(1)))]).param_groups
    assert group["lr"] == 0.25


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


@pytest.mark.parametrize("config_class", [AdamConfig, AdamWConfig, SgdConfig])
@pytest.mark.parametrize("option", ["lr", "weight_decay"])
def test_a_rate_that_overflows_single_precision_is_refused(config_class: type, option: str) -> None:
    assert config_class(**{option: 1e4})
    with pytest.raises(UsageError, match=rf"optimizer\.{option}=1e\+36 must be at most 10000"):
        config_class(**{option: 1e36})


def test_a_factor_of_noam_that_overflows_is_refused() -> None:
    with pytest.raises(UsageError, match=r"scheduler\.factor=1e\+36 must be at most 10000"):
        NoamConfig(factor=1e36)
