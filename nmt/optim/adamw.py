"""AdamW, Adam with decoupled weight decay: Loshchilov and Hutter 2019, arXiv:1711.05101; torch's implementation."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nmt.config.option import option
from nmt.optim import ParameterGroups, optimizers
from nmt.optim.adam import AdamConfig, options_of


@dataclass
class AdamWConfig(AdamConfig):
    """Adam whose weight decay shrinks the parameters themselves."""

    weight_decay: float = option(0.01, help="share of a parameter taken off, times the rate", flag="--weight-decay")


@optimizers.register("adamw", AdamWConfig)
def build(config: AdamWConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, **options_of(config, groups))
