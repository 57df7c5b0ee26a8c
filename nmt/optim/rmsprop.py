"""RMSProp as Graves uses it: "Generating Sequences With Recurrent Neural Networks", arXiv:1308.0850, equations 38-41.

The Neural Turing Machine is trained with it (Graves et al. 2014, arXiv:1410.5401, section 4.6, momentum 0.9). It differs
from torch's ``RMSprop(centered=True)`` in where epsilon stands, inside the root, and in that the rate scales each step
when it is made: steps that momentum repeats keep the rate that they had.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.by_group import GroupOptimizer
from nmt.optim.rmsprop_config import RmspropConfig


class GravesRmsprop(GroupOptimizer):
    """n and g average the squared gradient and the gradient; a step is -lr * gradient / sqrt(n - g^2 + eps)."""

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
def build(config: RmspropConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    constants = {"momentum": config.momentum, "decay": config.decay, "eps": config.eps}
    return GravesRmsprop(groups, {"lr": config.base_rate, "weight_decay": config.weight_decay, **constants})
