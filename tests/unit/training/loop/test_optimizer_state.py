"""Optimizer states leave and come back through tensors and JSON."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from nmt.errors import DataError
from nmt.optim import optimizers
from nmt.optim.config import AdamConfig, AdamThenSgdConfig, MuonConfig, SgdConfig
from nmt.training.loop.optimizer_state import OF_THE_DEVICE, pack, training_mode, unpack

CONFIGS = [
    *(
        optimizers.config_class(name)(lr=0.1)
        for name in optimizers.names()
        if name != "schedule_free_adamw" or importlib.util.find_spec("schedulefree")
    ),
    SgdConfig(lr=0.1, momentum=0.9),
    *(AdamThenSgdConfig(lr=0.1, switch_update=switch) for switch in (1, 3, 4)),  # before, at and after the checkpoint
]


def made(config: Any, names: tuple[str, ...] = ("a", "b")) -> tuple[torch.optim.Optimizer, list[Parameter]]:
    torch.manual_seed(1)
    parameters = [Parameter(torch.randn(3, 2)) for _ in names]
    return optimizers.build(config, [{"params": list(zip(names, parameters))}]), parameters


def steps(optimizer: torch.optim.Optimizer, parameters: list[Parameter], first: int, last: int) -> None:
    training_mode(optimizer)
    for step in range(first, last):
        for number, parameter in enumerate(parameters):
            parameter.grad = torch.sin(parameter.detach() * (step + number + 1))
        optimizer.step()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{type(config).__name__}")
def test_restoring_half_way_gives_the_parameters_of_going_through(config: Any) -> None:
    whole, expected = made(config)
    steps(whole, expected, 0, 6)
    first, parameters = made(config)
    steps(first, parameters, 0, 3)
    tensors, values = pack(first)
    second, restored = made(config)
    for parameter, value in zip(restored, parameters):
        parameter.data.copy_(value.data)
    unpack(
        second, {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(values)), groups=True
    )
    steps(second, restored, 3, 6)
    assert all(torch.equal(one, other) for one, other in zip(restored, expected))


def test_options_of_the_groups_come_back_only_if_asked_for() -> None:
    stored, parameters = made(SgdConfig(lr=0.1, momentum=0.9))
    steps(stored, parameters, 0, 1)
    for groups, momentum in ((True, 0.9), (False, 0.5)):
        optimizer, _ = made(SgdConfig(lr=0.1, momentum=0.5))
        unpack(optimizer, *pack(stored), groups=groups)
        assert optimizer.param_groups[0]["momentum"] == momentum


def test_how_the_kernel_runs_belongs_to_the_device_not_to_the_state() -> None:
    optimizer, parameters = made(AdamConfig(lr=0.1))
    steps(optimizer, parameters, 0, 1)
    for group in optimizer.param_groups:
        group.update(fused=None, foreach=True, capturable=True)
    tensors, values = pack(optimizer)
    assert all(not group.keys() & set(OF_THE_DEVICE) for group in values["groups"])
    values["groups"][0] |= {"fused": True, "foreach": False, "capturable": False, "lr": 0.5}  # as others wrote it
    unpack(optimizer, tensors, values, groups=True)
    (group,) = optimizer.param_groups
    assert (group["fused"], group["foreach"], group["capturable"], group["lr"]) == (None, True, True, 0.5)


def test_the_state_of_other_parameters_is_refused() -> None:
    optimizer, _ = made(SgdConfig(lr=0.1))
    other, _ = made(SgdConfig(lr=0.1), names=("a", "c"))
    with pytest.raises(DataError, match="other parameters"):
        unpack(optimizer, *pack(other), groups=True)


def test_after_a_change_of_groups_each_parameter_keeps_its_own_state_by_name() -> None:
    config = SgdConfig(lr=0.1, momentum=0.9)
    stored, parameters = made(config, names=("a", "b", "c"))
    steps(stored, parameters, 0, 1)
    a, b, d = (Parameter(torch.zeros(3, 2)) for _ in "abd")
    regrouped = optimizers.build(config, [{"params": [("d", d), ("b", b)]}, {"params": [("a", a)], "lr": 0.01}])
    unpack(regrouped, *pack(stored), groups=False)
    for parameter, before in ((a, parameters[0]), (b, parameters[1])):
        assert torch.equal(regrouped.state[parameter]["momentum_buffer"], stored.state[before]["momentum_buffer"])
    assert d not in regrouped.state
    assert [group["lr"] for group in regrouped.param_groups] == [0.1, 0.01]


def test_a_regrouped_state_without_names_is_refused() -> None:
    stored = torch.optim.SGD([Parameter(torch.ones(2))], lr=0.1)
    other, _ = made(SgdConfig(lr=0.1))
    with pytest.raises(DataError, match="has no names to match them"):
        unpack(other, *pack(stored), groups=False)


class Averaging(torch.optim.SGD):
    """An optimizer with modes, whatever they do."""

    def train(self) -> None: ...

    def eval(self) -> None: ...


def test_an_optimizer_that_averages_weights_begins_afresh_after_a_change_of_options() -> None:
    parameter = Parameter(torch.ones(2))
    optimizers = [Averaging([("weight", parameter)], lr=0.1, momentum=0.9) for _ in range(2)]
    steps(optimizers[0], [parameter], 0, 1)
    assert not unpack(optimizers[1], *pack(optimizers[0]), groups=False) and not optimizers[1].state
    assert unpack(optimizers[1], *pack(optimizers[0]), groups=True) and optimizers[1].state


@pytest.mark.parametrize("groups", [1, 2])
def test_a_parameter_that_another_rule_takes_over_begins_afresh(groups: int, caplog: pytest.LogCaptureFixture) -> None:
    """Muon keeps other numbers than AdamW, also where all parameters change hands."""
    caplog.set_level("INFO")
    names = ("a", "b")[:groups]
    stored, parameters = made(MuonConfig(lr=0.1, adamw_names=["b"]), names)
    steps(stored, parameters, 0, 2)
    other, others = made(MuonConfig(lr=0.1, adamw_names=["a", "b"]), names)
    unpack(other, *pack(stored), groups=False)
    assert "optimizer state: 1 new parameter starts without one, that of 1 removed parameter is dropped" in caplog.text
    assert others[0] not in other.state
    if groups == 2:
        assert torch.equal(other.state[others[1]]["exp_avg"], stored.state[parameters[1]]["exp_avg"])
    steps(other, others, 2, 4)
    assert other.state[others[0]].keys() >= {"exp_avg", "exp_avg_sq"}
