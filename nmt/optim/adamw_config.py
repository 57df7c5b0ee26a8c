"""The options of the optimizer ``adamw``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.optim import optimizers
from nmt.optim.adam_config import AdamConfig


@optimizers.declare("adamw")
@dataclass
class AdamWConfig(AdamConfig):
    """Adam whose weight decay shrinks the parameters themselves."""

    weight_decay: float = option(0.01, help="share of a parameter taken off, times the rate", flag="--weight-decay")
