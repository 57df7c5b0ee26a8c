"""Optimizers whose steps, or parts of them, are written here: Lion, Graves' RMSProp, Adam and then SGD, Muon with AdamW."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from nmt.optim import APPLIED_RATE, ParameterGroups, optimizers
from nmt.optim.config import AdamThenSgdConfig, LionConfig, MuonConfig, RmspropConfig
from nmt.optim.parameter_groups import shown
from nmt.optim.torch_optimizers import options_of_adam, runs_fused


class GroupOptimizer(torch.optim.Optimizer):
    """The base of optimizers whose step treats all parameters of a group at once; subclasses say what it does to one."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self.step_group(parameters, [parameter.grad for parameter in parameters], group)

    @abstractmethod
    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """Change ``parameters`` in place; ``group`` has the options."""

    def running(self, name: str, parameters: list[Tensor]) -> list[Tensor]:
        """A tensor of the state of each parameter, zero at first."""
        for parameter in parameters:
            if name not in self.state[parameter]:
                self.state[parameter][name] = torch.zeros_like(parameter)
        return [self.state[parameter][name] for parameter in parameters]


class Lion(GroupOptimizer):
    """The sign of an interpolated momentum: Chen et al. 2023, arXiv:2302.06675, algorithm 2.

    Every element moves by the rate, up or down; one running tensor a parameter, where Adam has two.
    """

    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        momenta = self.running("momentum", parameters)
        first, second = group["betas"]
        steps = torch._foreach_lerp(gradients, momenta, first)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, steps, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, gradients, 1.0 - second)


@optimizers.register("lion", LionConfig)
def lion(config: LionConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    constants = {"lr": config.base_rate, "betas": tuple(config.betas), "weight_decay": config.weight_decay}
    return Lion(groups, constants)


class GravesRmsprop(GroupOptimizer):
    """RMSProp as Graves uses it: "Generating Sequences With Recurrent Neural Networks", arXiv:1308.0850, equations 38-41.

    n and g average the squared gradient and the gradient; a step is -lr * gradient / sqrt(n - g^2 + eps). The Neural Turing
    Machine is trained with it (Graves et al. 2014, arXiv:1410.5401, section 4.6, momentum 0.9). It differs from torch's
    ``RMSprop(centered=True)`` in where epsilon stands, inside the root, and in that the rate scales each step when it is
    made: steps that momentum repeats keep the rate that they had.
    """

    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        squares, means, steps = (self.running(name, parameters) for name in ("square", "mean", "step"))
        torch._foreach_mul_(squares, group["decay"])
        torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - group["decay"])  # equation 38
        torch._foreach_mul_(means, group["decay"])
        torch._foreach_add_(means, gradients, alpha=1.0 - group["decay"])  # equation 39
        variances = torch._foreach_addcmul(squares, means, means, -1.0)
        torch._foreach_clamp_min_(variances, 0.0)  # rounding may take a constant gradient's below zero
        torch._foreach_add_(variances, group["eps"])
        torch._foreach_sqrt_(variances)
        torch._foreach_mul_(steps, group["momentum"])
        torch._foreach_addcdiv_(steps, gradients, variances, -group["lr"])  # equation 40
        torch._foreach_add_(parameters, steps)  # equation 41


@optimizers.register("rmsprop", RmspropConfig)
def rmsprop(config: RmspropConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    constants = {"momentum": config.momentum, "decay": config.decay, "eps": config.eps}
    return GravesRmsprop(groups, {"lr": config.base_rate, "weight_decay": config.weight_decay, **constants})


class AdamThenSgd(GroupOptimizer, torch.optim.Adam):
    """Adam, and plain gradient descent from some update on: Wu et al. 2016 (GNMT), arXiv:1609.08144, section 8.3.

    A schedule's factor applies to both rates: that of the descent is ``sgd_ratio`` times the group's.

    Updates are counted by Adam's own step counters, so a checkpoint holds all there is to know. Once it has switched,
    its moments are gone and it stays with gradient descent, even if a later start asks for more of Adam.
    """

    def __init__(self, groups: ParameterGroups, *, switch_update: int, sgd_ratio: float, **options: Any) -> None:
        super().__init__(groups, **options)
        self._switch_update, self._sgd_ratio = switch_update, sgd_ratio

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        rule = GroupOptimizer if self._switched() else torch.optim.Adam
        rule.step(self, closure)

    def _switched(self) -> bool:
        states = [state for state in self.state.values() if state]
        if states and not any("exp_avg" in state for state in states):
            return True
        if max((int(state["step"]) for state in states), default=0) < self._switch_update:
            return False
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {"step": torch.tensor(float(self._switch_update))}
        return True

    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """Descend."""
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        group[APPLIED_RATE] = group["lr"] * self._sgd_ratio
        torch._foreach_add_(parameters, gradients, alpha=-group[APPLIED_RATE])


@optimizers.register("adam_then_sgd", AdamThenSgdConfig)
def adam_then_sgd(config: AdamThenSgdConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    ratio = config.sgd_lr / config.base_rate
    return AdamThenSgd(groups, switch_update=config.switch_update, sgd_ratio=ratio, **options_of_adam(config))


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for the matrices between the layers, AdamW for the rest: Jordan et al. 2024,
    https://kellerjordan.github.io/posts/muon. Two of torch's optimizers over one set of groups and one state, which are
    this object's.

    A matrix moves along its momentum made orthogonal by Newton-Schulz iterations, times 0.2 sqrt(longer side): its elements
    then move as far as AdamW's do, so that both take the same rate and weight decay (Liu et al. 2025, arXiv:2502.16982,
    section 2.2).
    """

    def __init__(self, matrices: ParameterGroups, rest: ParameterGroups, config: MuonConfig) -> None:
        rate, decay = config.base_rate, config.weight_decay
        self._rules: dict[str, torch.optim.Optimizer] = {}
        if rest:
            self._rules["adamw"] = torch.optim.AdamW(rest, **options_of_adam(config), fused=runs_fused(rest))
        if matrices:
            self._rules["muon"] = torch.optim.Muon(
                matrices,
                lr=rate,
                weight_decay=decay,
                momentum=config.momentum,
                nesterov=True,
                ns_steps=config.iterations,
                adjust_lr_fn="match_rms_adamw",
            )
        groups = [{**group, "rule": name} for name, rule in self._rules.items() for group in rule.param_groups]
        groups.sort(key=lambda group: group["lr"] != rate)  # the first has the rate that is reported
        super().__init__(groups, {"lr": rate, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        for name, rule in self._rules.items():  # loading a state replaces both, so they are handed over each time
            rule.param_groups = [group for group in self.param_groups if group["rule"] == name]
            rule.state = self.state
            rule.step()


def for_muon(name: str, parameter: Parameter, adamw_names: Sequence[str]) -> bool:
    """Whether a parameter is a matrix that maps one hidden vector to another.

    Embeddings, the output layer and starting states, which the names tell, go to AdamW, and so does whatever is not a
    matrix: norms, biases, experts and convolutions stored with three or four axes. A matrix is taken as the model stores
    it: the joint projection of queries, keys and values, or the gates of an LSTM, is one.
    """
    spared = any(fnmatchcase(shown(name), pattern) for pattern in adamw_names)
    return parameter.dim() == 2 and min(parameter.shape) > 1 and not spared


@optimizers.register("muon", MuonConfig)
def muon(config: MuonConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    parts: dict[bool, ParameterGroups] = {True: [], False: []}
    for group in groups:
        for is_matrix, part in parts.items():
            named = group["params"]
            of_part = [(name, one) for name, one in named if for_muon(name, one, config.adamw_names) is is_matrix]
            part += [{**group, "params": of_part}] if of_part else []
    return MuonWithAdamW(parts[True], parts[False], config)
