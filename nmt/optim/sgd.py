"""Stochastic gradient descent, with momentum if asked for; torch's implementation."""

from __future__ import annotations

import torch

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.sgd_config import SgdConfig


@optimizers.register("sgd", SgdConfig)
def build(config: SgdConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        groups,
        lr=config.base_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )
