"""AdamW whose averaged weights take the place of a schedule: Defazio et al. 2024, arXiv:2405.15682.

The implementation is the authors' package ``schedulefree``, an optional extra. It trains at points y between the plain
sequence z and its average x; validation and checkpoints see x. Its weights of the average follow the rate during the
warm-up.
"""

from __future__ import annotations

import torch

from nmt.errors import UsageError
from nmt.optim import ParameterGroups, optimizers
from nmt.optim.schedule_free_adamw_config import ScheduleFreeAdamWConfig


@optimizers.register("schedule_free_adamw", ScheduleFreeAdamWConfig)
def build(config: ScheduleFreeAdamWConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    try:
        from schedulefree import AdamWScheduleFree
    except ImportError:
        raise UsageError(
            "optimizer schedule_free_adamw needs a package that is not installed: pip install 'nmt-toolkit[schedulefree]'"
        ) from None
    first, second = config.betas
    optimizer: torch.optim.Optimizer = AdamWScheduleFree(
        groups, lr=config.base_rate, betas=(first, second), eps=config.eps, weight_decay=config.weight_decay
    )
    return optimizer
