"""The options of the optimizer ``adam_then_sgd``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative
from nmt.config.option import option
from nmt.optim import optimizers
from nmt.optim.adam_config import AdamConfig
from nmt.optim.checks import check_rates


@optimizers.declare("adam_then_sgd")
@dataclass
class AdamThenSgdConfig(AdamConfig):
    """The paper's rates and switch; its betas and epsilon are those of Adam's own paper."""

    default_rate = 2e-4

    lr: float | None = option(None, help="peak learning rate of Adam; null: 0.0002", flag="--lr")
    betas: list[float] = option([0.9, 0.999], help="decay of the two moment averages", flag="--adam-betas")
    eps: float = option(1e-8, help="added to the root of the second moment", flag="--adam-eps")
    sgd_lr: float = option(0.5, help="peak learning rate of gradient descent", flag="--sgd-lr")
    switch_update: int = option(60_000, help="updates with Adam", flag="--switch-update")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rates(self.sgd_lr, self.weight_decay, name="sgd_lr")
        require_not_negative("optimizer", switch_update=self.switch_update)
