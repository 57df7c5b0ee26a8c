"""The options of the optimizers ``adam`` and ``adamw``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.config.roles import OptimizerConfig
from nmt.optim import optimizers
from nmt.optim.checks import check_adam


@optimizers.declare("adam")
@dataclass
class AdamConfig(OptimizerConfig):
    """Betas and epsilon are those of "Attention Is All You Need", section 5.3."""

    default_rate = 5e-4

    lr: float | None = option(None, help="peak learning rate; null: 0.0005", flag="--lr")
    betas: list[float] = option([0.9, 0.98], help="decay of the two moment averages", flag="--adam-betas")
    eps: float = option(1e-9, help="added to the root of the second moment", flag="--adam-eps")
    weight_decay: float = option(0.0, help="L2 penalty, added to the gradient", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_adam(self.lr, self.betas, self.eps, self.weight_decay)


@optimizers.declare("adamw")
@dataclass
class AdamWConfig(AdamConfig):
    """Adam whose weight decay shrinks the parameters themselves."""

    weight_decay: float = option(0.01, help="share of a parameter taken off, times the rate", flag="--weight-decay")
