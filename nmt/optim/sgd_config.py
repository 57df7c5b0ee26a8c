"""The options of the optimizer ``sgd``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.config.sections import require_share
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.checks import check_rates

DEFAULT_RATE = 0.1


@optimizers.declare("sgd")
@dataclass
class SgdConfig:
    """Plain gradient descent."""

    lr: float | None = option(None, help="peak learning rate; null: 0.1", flag="--lr")
    momentum: float = option(0.0, help="share of the last step that is repeated", flag="--momentum")
    nesterov: bool = option(False, help="Nesterov's form of momentum")
    weight_decay: float = option(0.0, help="L2 penalty, added to the gradient", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_share("optimizer", momentum=self.momentum)
        if self.nesterov and self.momentum == 0.0:
            raise UsageError("optimizer.nesterov=true needs a momentum; set optimizer.momentum (--momentum 0.9)")

    @property
    def base_rate(self) -> float:
        return DEFAULT_RATE if self.lr is None else self.lr
