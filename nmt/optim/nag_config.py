"""The options of the optimizer ``nag``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.config.sections import require_share
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.checks import check_rates

DEFAULT_RATE = 0.25


@optimizers.declare("nag")
@dataclass
class NagConfig:
    """Momentum and rate are those of Gehring et al. 2017, arXiv:1705.03122, section 4.2; it clips to a norm of 0.1."""

    lr: float | None = option(None, help="peak learning rate; null: 0.25", flag="--lr")
    momentum: float = option(0.99, help="share of the last step that is repeated", flag="--momentum")
    weight_decay: float = option(0.0, help="L2 penalty, added to the gradient", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_share("optimizer", momentum=self.momentum)
        if self.momentum == 0.0:
            raise UsageError("optimizer.momentum=0.0 leaves nothing of nag; use --optimizer sgd")

    @property
    def base_rate(self) -> float:
        return DEFAULT_RATE if self.lr is None else self.lr
