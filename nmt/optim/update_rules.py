"""Our own optimizers: Lion, Graves' RMSProp, Adam followed by SGD, and Muon with AdamW."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nmt.optim import APPLIED_RATE, ParameterGroups, optimizers
from nmt.optim.config import AdamThenSgdConfig, LionConfig, MuonConfig, RmspropConfig
from nmt.optim.parameter_groups import displayed_name
from nmt.optim.torch_optimizers import options_of_adam, runs_fused


class GroupOptimizer(torch.optim.Optimizer):
    """The base of optimizers that update all parameters of a group at once."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self.step_group(parameters, [parameter.grad for parameter in parameters], group)

    @abstractmethod
    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """Update ``parameters`` in place; ``group`` holds the options."""

    def running(self, name: str, parameters: list[Tensor]) -> list[Tensor]:
        """Return a state tensor for each parameter, initially zero."""
        for parameter in parameters:
            if name not in self.state[parameter]:
                self.state[parameter][name] = torch.zeros_like(parameter)
        return [self.state[parameter][name] for parameter in parameters]


@optimizers.register("lion", LionConfig)
class Lion(GroupOptimizer):
    """The sign of an interpolated momentum: Chen et al. 2023, arXiv:2302.06675, algorithm 2.

    Every element changes by the learning rate. The state is one tensor for each parameter; Adam has two.
    """

    def __init__(self, config: LionConfig, groups: ParameterGroups) -> None:
        constants = {"lr": config.base_rate, "betas": tuple(config.betas), "weight_decay": config.weight_decay}
        super().__init__(groups, constants)

    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        momenta = self.running("momentum", parameters)
        first, second = group["betas"]
        steps = torch._foreach_lerp(gradients, momenta, first)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, steps, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, gradients, 1.0 - second)


@optimizers.register("rmsprop", RmspropConfig)
class GravesRmsprop(GroupOptimizer):
    """RMSProp as Graves uses it: "Generating Sequences With Recurrent Neural Networks", arXiv:1308.0850, equations 38-41.

    n and g average the squared gradient and the gradient; a step is -lr * gradient / sqrt(n - g^2 + eps). The Neural Turing
    Machine is trained with it (Graves et al. 2014, arXiv:1410.5401, section 4.6, momentum 0.9). It differs from torch's
    ``RMSprop(centered=True)``: epsilon is inside the root, and the momentum buffer is scaled by the learning rates of past
    steps.
    """

    def __init__(self, config: RmspropConfig, groups: ParameterGroups) -> None:
        constants = {"momentum": config.momentum, "decay": config.decay, "eps": config.eps}
        super().__init__(groups, {"lr": config.base_rate, "weight_decay": config.weight_decay, **constants})

    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        squares, means, steps = (self.running(name, parameters) for name in ("square", "mean", "step"))
        torch._foreach_mul_(squares, group["decay"])
        torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - group["decay"])  # equation 38
        torch._foreach_mul_(means, group["decay"])
        torch._foreach_add_(means, gradients, alpha=1.0 - group["decay"])  # equation 39
        variances = torch._foreach_addcmul(squares, means, means, -1.0)
        torch._foreach_clamp_min_(variances, 0.0)  # rounding may make the variance of a constant gradient negative
        torch._foreach_add_(variances, group["eps"])
        torch._foreach_sqrt_(variances)
        torch._foreach_mul_(steps, group["momentum"])
        torch._foreach_addcdiv_(steps, gradients, variances, -group["lr"])  # equation 40
        torch._foreach_add_(parameters, steps)  # equation 41


@optimizers.register("adam_then_sgd", AdamThenSgdConfig)
class AdamThenSgd(GroupOptimizer, torch.optim.Adam):
    """Adam, followed by plain gradient descent: Wu et al. 2016 (GNMT), arXiv:1609.08144, section 8.3.

    A schedule's factor applies to both learning rates, whose ratio is constant. Adam's step counters
    count updates. After the switch, Adam's moments are deleted and gradient descent continues, even if the run resumes with
    a later ``switch_update``.
    """

    def __init__(self, config: AdamThenSgdConfig, groups: ParameterGroups) -> None:
        super().__init__(groups, **options_of_adam(config))
        self._switch_update, self._sgd_ratio = config.switch_update, config.sgd_lr / config.base_rate

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
        """Take a step of gradient descent."""
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        group[APPLIED_RATE] = group["lr"] * self._sgd_ratio
        torch._foreach_add_(parameters, gradients, alpha=-group[APPLIED_RATE])


@optimizers.register("muon", MuonConfig)
class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for matrices that map one hidden vector to another, AdamW for the rest: Jordan et al. 2024,
    https://kellerjordan.github.io/posts/muon.

    Both are torch optimizers that share this object's groups and state; a group's "rule" selects one. Groups without a
    "rule" are divided; their matrices count as maps of hidden vectors. Muon orthogonalizes
    the momentum by Newton-Schulz iterations and scales it by 0.2 sqrt(longer side). Its steps are then as large as AdamW's,
    with the same learning rate and weight decay (Liu et al. 2025, arXiv:2502.16982, section 2.2). Joint matrices, such as
    the projection to queries, keys and values, are not split.
    """

    def __init__(self, config: MuonConfig, groups: ParameterGroups) -> None:
        rate, decay = config.base_rate, config.weight_decay
        self._rules: dict[str, torch.optim.Optimizer] = {}
        rest, matrices = (_groups_of(rule, config, groups) for rule in ("adamw", "muon"))
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
        own_groups = [group for rule in self._rules.values() for group in rule.param_groups]
        own_groups.sort(key=lambda group: group["lr"] != rate)  # the first group's rate is reported
        super().__init__(own_groups, {"lr": rate, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        for name, rule in self._rules.items():  # loading replaces groups and state, so they are set each time
            rule.param_groups = [group for group in self.param_groups if group["rule"] == name]
            rule.state = self.state
            rule.step()


def _groups_of(rule: str, config: MuonConfig, groups: ParameterGroups) -> ParameterGroups:
    """Return the parameters of a rule in their groups, without empty groups."""
    groups_of_rule: ParameterGroups = []
    for group in groups:
        named = [
            (name, parameter)
            for name, parameter in group["params"]
            if (group.get("rule") or config.rule_of(displayed_name(name), tuple(parameter.shape), True)) == rule
        ]
        groups_of_rule += [{**group, "params": named, "rule": rule}] if named else []
    return groups_of_rule
