"""Lion, the sign of an interpolated momentum: Chen et al. 2023, arXiv:2302.06675, algorithm 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.config.option import option
from nmt.optim import ParameterGroups, optimizers
from nmt.optim.checks import check_betas, check_rates

DEFAULT_RATE = 1e-4


@dataclass
class LionConfig:
    """Section 5 of the paper advises a rate of a tenth to a third of AdamW's and as much more weight decay."""

    lr: float | None = option(None, help="peak learning rate; null: 0.0001", flag="--lr")
    betas: list[float] = option(
        [0.9, 0.99], help="share of the momentum in a step, and what is kept of it", flag="--lion-betas"
    )
    weight_decay: float = option(0.0, help="share of a parameter taken off, times the rate", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_betas(self.betas, "--lion-betas 0.9,0.99")

    @property
    def base_rate(self) -> float:
        return DEFAULT_RATE if self.lr is None else self.lr


class Lion(torch.optim.Optimizer):
    """Every element moves by the rate, up or down; one running tensor a parameter, where Adam has two."""

    def __init__(self, groups: ParameterGroups, *, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        for group in self.param_groups:
            parameters: list[Tensor] = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._step(parameters, group)

    def _step(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        momenta = [self.state[parameter]["momentum"] for parameter in parameters]
        first, second = group["betas"]
        steps = torch._foreach_lerp(gradients, momenta, first)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, steps, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, gradients, 1.0 - second)


@optimizers.register("lion", LionConfig)
def build(config: LionConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    first, second = config.betas
    return Lion(groups, lr=config.base_rate, betas=(first, second), weight_decay=config.weight_decay)
