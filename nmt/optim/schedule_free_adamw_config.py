"""The options of the optimizer ``schedule_free_adamw``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.config.roles import OptimizerConfig
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.checks import check_adam


@optimizers.declare("schedule_free_adamw")
@dataclass
class ScheduleFreeAdamWConfig(OptimizerConfig):
    """Constants of the authors' package. A warm-up is the scheduler's; what else a scheduler does is not wanted."""

    default_rate = 2.5e-3
    schedule_free = True

    lr: float | None = option(None, help="learning rate after the warm-up; null: 0.0025", flag="--lr")
    betas: list[float] = option(
        [0.9, 0.999],
        help="share of the average in the training weights; decay of the second moment",
        flag="--adam-betas",
    )
    eps: float = option(1e-8, help="added to the root of the second moment", flag="--adam-eps")
    weight_decay: float = option(
        0.0, help="share of the training weights taken off, times the rate", flag="--weight-decay"
    )

    def __post_init__(self) -> None:
        check_adam(self.lr, self.betas, self.eps, self.weight_decay)
        if self.betas[0] == 0.0:
            raise UsageError(f"optimizer.betas={self.betas}: the first must be above 0 (--adam-betas 0.9,0.999)")
