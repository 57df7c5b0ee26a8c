"""Adafactor, second moments of a matrix from its rows and columns: Shazeer and Stern 2018, arXiv:1804.04235.

torch's implementation of algorithm 4: update clipping, a decay of the averages that grows with the updates (section 7),
no momentum. A step is a share of the parameter's own size (section 8), and this share is min(lr, 1 / sqrt(update)): the
rate is an upper bound. torch has no switch for either, and keeps averages of the squares, not sums, which is the same.
"""

from __future__ import annotations

import torch

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.adafactor_config import AdafactorConfig


@optimizers.register("adafactor", AdafactorConfig)
def build(config: AdafactorConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.Adafactor(
        groups,
        lr=config.base_rate,
        beta2_decay=config.decay_rate,
        eps=(None, config.min_scale),
        d=config.clip_threshold,
        weight_decay=config.weight_decay,
    )
