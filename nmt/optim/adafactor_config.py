"""The options of the optimizer ``adafactor``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.config.checks import require_not_negative
from nmt.config.option import option
from nmt.config.roles import OptimizerConfig
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.checks import check_rates


@optimizers.declare("adafactor")
@dataclass
class AdafactorConfig(OptimizerConfig):
    """Constants of the paper's section 9."""

    default_rate = 1e-2
    whole_matrices = True

    lr: float | None = option(None, help="largest share of a parameter's size a step; null: 0.01", flag="--lr")
    decay_rate: float = option(
        -0.8, help="the averages forget the share update^decay_rate at each update", flag="--decay-rate"
    )
    clip_threshold: float = option(
        1.0, help="root mean square of a step, before the rate, that is not exceeded", flag="--clip-threshold"
    )
    min_scale: float = option(1e-3, help="least size that a parameter is taken to have", flag="--adafactor-min-scale")
    weight_decay: float = option(0.0, help="share of a parameter taken off, times the rate", flag="--weight-decay")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_not_negative("optimizer", min_scale=self.min_scale)
        if not -10.0 <= self.decay_rate <= 0.0:
            raise UsageError(f"optimizer.decay_rate={self.decay_rate} must lie between -10 and 0 (--decay-rate -0.8)")
        if not 1.0 <= self.clip_threshold < math.inf:
            raise UsageError(f"optimizer.clip_threshold={self.clip_threshold} must be at least 1 (--clip-threshold 1)")
