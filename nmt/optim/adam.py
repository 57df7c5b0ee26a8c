"""Adam: Kingma and Ba 2015, arXiv:1412.6980; torch's implementation."""

from __future__ import annotations

from typing import Any

import torch

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.adam_config import AdamConfig
from nmt.optim.fused import runs_fused


@optimizers.register("adam", AdamConfig)
def build(config: AdamConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, **options_of(config, groups))


def options_of(config: AdamConfig, groups: ParameterGroups) -> dict[str, Any]:
    """As torch's optimizers of this family call them."""
    return {
        "lr": config.base_rate,
        "betas": tuple(config.betas),
        "eps": config.eps,
        "weight_decay": config.weight_decay,
        "fused": runs_fused(groups),
    }
