"""The options of the optimizer ``rmsprop``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_positive, require_share
from nmt.config.option import option
from nmt.config.roles import OptimizerConfig
from nmt.optim import optimizers
from nmt.optim.checks import check_rates


@optimizers.declare("rmsprop")
@dataclass
class RmspropConfig(OptimizerConfig):
    """Constants of equations 38-41; the paper's values."""

    default_rate = 1e-4

    lr: float | None = option(None, help="peak learning rate; null: 0.0001", flag="--lr")
    momentum: float = option(0.9, help="share of the last step that is repeated", flag="--momentum")
    decay: float = option(0.95, help="decay of the averages of the gradient and of its square", flag="--rmsprop-decay")
    eps: float = option(1e-4, help="added to the variance of the gradient, under the root", flag="--rmsprop-eps")
    weight_decay: float = option(0.0, help="L2 penalty, added to the gradient", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_share("optimizer", momentum=self.momentum, decay=self.decay)
        require_positive("optimizer", eps=self.eps)
