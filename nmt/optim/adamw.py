"""AdamW, Adam with decoupled weight decay: Loshchilov and Hutter 2019, arXiv:1711.05101; torch's implementation."""

from __future__ import annotations

import torch

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.adam import options_of
from nmt.optim.adamw_config import AdamWConfig


@optimizers.register("adamw", AdamWConfig)
def build(config: AdamWConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, **options_of(config, groups))
