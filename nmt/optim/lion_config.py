"""The options of the optimizer ``lion``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.config.roles import OptimizerConfig
from nmt.optim import optimizers
from nmt.optim.checks import check_betas, check_rates


@optimizers.declare("lion")
@dataclass
class LionConfig(OptimizerConfig):
    """Section 5 of the paper advises a rate of a tenth to a third of AdamW's and as much more weight decay."""

    default_rate = 1e-4

    lr: float | None = option(None, help="peak learning rate; null: 0.0001", flag="--lr")
    betas: list[float] = option(
        [0.9, 0.99], help="share of the momentum in a step, and what is kept of it", flag="--lion-betas"
    )
    weight_decay: float = option(0.0, help="share of a parameter taken off, times the rate", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_betas(self.betas, "--lion-betas 0.9,0.99")
