"""Adam and AdamW, torch's implementations: Kingma and Ba 2015, arXiv:1412.6980; AdamW, whose weight decay is decoupled from
the gradient: Loshchilov and Hutter 2019, arXiv:1711.05101."""

from __future__ import annotations

from typing import Any

import torch

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.adam_config import AdamConfig, AdamWConfig
from nmt.optim.fused import runs_fused


@optimizers.register("adam", AdamConfig)
def build_adam(config: AdamConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, **_options(config, groups))


@optimizers.register("adamw", AdamWConfig)
def build_adamw(config: AdamWConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, **_options(config, groups))


def _options(config: AdamConfig, groups: ParameterGroups) -> dict[str, Any]:
    """The options by torch's names."""
    return {
        "lr": config.base_rate,
        "betas": tuple(config.betas),
        "eps": config.eps,
        "weight_decay": config.weight_decay,
        "fused": runs_fused(groups),
    }
