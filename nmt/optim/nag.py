"""Nesterov's accelerated gradient, which "Convolutional Sequence to Sequence Learning" is trained with.

The form is that of Bengio et al. 2012, arXiv:1212.0901, equation 7: p <- p + m^2 v - (1 + m) lr g and v <- m v - lr g,
v being rescaled when the rate changes, as fairseq's ``nag`` has it. torch's SGD with ``nesterov`` keeps v / lr instead
and makes the same steps, whatever the rate does; only its weight decay is an L2 penalty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nmt.config.option import option
from nmt.errors import UsageError
from nmt.optim import ParameterGroups, optimizers
from nmt.optim.checks import check_rates, check_shares

DEFAULT_RATE = 0.25


@dataclass
class NagConfig:
    """Momentum and rate are those of Gehring et al. 2017, arXiv:1705.03122, section 4.2; it clips to a norm of 0.1."""

    lr: float | None = option(None, help="peak learning rate; null: 0.25", flag="--lr")
    momentum: float = option(0.99, help="share of the last step that is repeated", flag="--momentum")
    weight_decay: float = option(0.0, help="L2 penalty, added to the gradient", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_shares(momentum=self.momentum)
        if self.momentum == 0.0:
            raise UsageError("optimizer.momentum=0.0 leaves nothing of nag; use --optimizer sgd")

    @property
    def base_rate(self) -> float:
        return DEFAULT_RATE if self.lr is None else self.lr


@optimizers.register("nag", NagConfig)
def build(config: NagConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        groups,
        lr=config.base_rate,
        momentum=config.momentum,
        nesterov=True,
        weight_decay=config.weight_decay,
    )
