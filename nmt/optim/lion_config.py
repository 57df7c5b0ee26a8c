"""The options of the optimizer ``lion``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.optim import optimizers
from nmt.optim.checks import check_betas, check_rates

DEFAULT_RATE = 1e-4


@optimizers.declare("lion")
@dataclass
class LionConfig:
    """Section 5 of the paper advises a rate of a tenth to a third of AdamW's and as much more weight decay."""

    lr: float | None = option(None, help="peak learning rate; null: 0.0001", flag="--lr")
    betas: list[float] = option(
        [0.9, 0.99], help="share of the momentum in a step, and what is kept of it", flag="--lion-betas"
    )
    weight_decay: float = option(0.0, help="share of a parameter taken off, times the rate", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_betas(self.betas, "--lion-betas 0.9,0.99")

    @property
    def base_rate(self) -> float:
        return DEFAULT_RATE if self.lr is None else self.lr
