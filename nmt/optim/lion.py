"""Lion, the sign of an interpolated momentum: Chen et al. 2023, arXiv:2302.06675, algorithm 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.by_group import GroupOptimizer
from nmt.optim.lion_config import LionConfig


class Lion(GroupOptimizer):
    """Every element moves by the rate, up or down; one running tensor a parameter, where Adam has two."""

    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        momenta = self.running("momentum", parameters)
        first, second = group["betas"]
        steps = torch._foreach_lerp(gradients, momenta, first)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, steps, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, gradients, 1.0 - second)


@optimizers.register("lion", LionConfig)
def build(config: LionConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    constants = {"lr": config.base_rate, "betas": tuple(config.betas), "weight_decay": config.weight_decay}
    return Lion(groups, constants)
