"""Nesterov's accelerated gradient, which "Convolutional Sequence to Sequence Learning" is trained with.

The form is that of Bengio et al. 2012, arXiv:1212.0901, equation 7: p <- p + m^2 v - (1 + m) lr g and v <- m v - lr g,
v being rescaled when the rate changes, as fairseq's ``nag`` has it. torch's SGD with ``nesterov`` keeps v / lr instead
and makes the same steps, whatever the rate does; only its weight decay is an L2 penalty.
"""

from __future__ import annotations

import torch

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.nag_config import NagConfig


@optimizers.register("nag", NagConfig)
def build(config: NagConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        groups,
        lr=config.base_rate,
        momentum=config.momentum,
        nesterov=True,
        weight_decay=config.weight_decay,
    )
