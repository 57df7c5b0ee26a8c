"""Stochastic gradient descent, and Nesterov's accelerated gradient (``nag``); both are torch's implementation.

fairseq's ``nag`` has the form of Bengio et al. 2012, arXiv:1212.0901, equation 7: p <- p + m^2 v - (1 + m) lr g and
v <- m v - lr g, v being rescaled when the rate changes. torch's keeps v / lr instead and makes the same steps, whatever the
rate does; only its weight decay is an L2 penalty.
"""

from __future__ import annotations

import torch

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.sgd_config import NagConfig, SgdConfig


@optimizers.register("sgd", SgdConfig)
@optimizers.register("nag", NagConfig)
def build(config: SgdConfig | NagConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        groups,
        lr=config.base_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )
