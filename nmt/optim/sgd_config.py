"""The options of the optimizers ``sgd`` and ``nag``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_share
from nmt.config.option import option
from nmt.config.roles import OptimizerConfig
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.checks import check_rates


@optimizers.declare("sgd")
@dataclass
class SgdConfig(OptimizerConfig):
    """Plain gradient descent."""

    default_rate = 0.1

    lr: float | None = option(None, help="peak learning rate; null: 0.1", flag="--lr")
    momentum: float = option(0.0, help="share of the last step that is repeated", flag="--momentum")
    nesterov: bool = option(False, help="Nesterov's form of momentum")
    weight_decay: float = option(0.0, help="L2 penalty, added to the gradient", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_share("optimizer", momentum=self.momentum)
        if self.nesterov and self.momentum == 0.0:
            raise UsageError("optimizer.nesterov=true needs a momentum; set optimizer.momentum (--momentum 0.9)")


@optimizers.declare("nag")
@dataclass
class NagConfig(OptimizerConfig):
    """Momentum and rate are those of Gehring et al. 2017, arXiv:1705.03122, section 4.2; it clips to a norm of 0.1."""

    default_rate = 0.25
    nesterov = True

    lr: float | None = option(None, help="peak learning rate; null: 0.25", flag="--lr")
    momentum: float = option(0.99, help="share of the last step that is repeated", flag="--momentum")
    weight_decay: float = option(0.0, help="L2 penalty, added to the gradient", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_share("optimizer", momentum=self.momentum)
        if self.momentum == 0.0:
            raise UsageError("optimizer.momentum=0.0 leaves nothing of nag; use --optimizer sgd")
