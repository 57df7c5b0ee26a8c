"""Optimizers of torch, and of the package ``schedulefree``, under the names that users choose."""

from __future__ import annotations

from typing import Any

import torch

from nmt.errors import UsageError
from nmt.optim import ParameterGroups, optimizers
from nmt.optim.config import AdafactorConfig, AdamConfig, AdamWConfig, NagConfig, ScheduleFreeAdamWConfig, SgdConfig


@optimizers.register("sgd", SgdConfig)
@optimizers.register("nag", NagConfig)
def sgd(config: SgdConfig | NagConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    """Stochastic gradient descent, and Nesterov's accelerated gradient (``nag``).

    fairseq's ``nag`` has the form of Bengio et al. 2012, arXiv:1212.0901, equation 7: p <- p + m^2 v - (1 + m) lr g and
    v <- m v - lr g, v being rescaled when the rate changes. torch's keeps v / lr instead and makes the same steps,
    whatever the rate does; only its weight decay is an L2 penalty.
    """
    return torch.optim.SGD(
        groups,
        lr=config.base_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )


@optimizers.register("adam", AdamConfig)
def adam(config: AdamConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    """Kingma and Ba 2015, arXiv:1412.6980."""
    return torch.optim.Adam(groups, **options_of_adam(config), fused=runs_fused(groups))


@optimizers.register("adamw", AdamWConfig)
def adamw(config: AdamWConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    """Adam whose weight decay is decoupled from the gradient: Loshchilov and Hutter 2019, arXiv:1711.05101."""
    return torch.optim.AdamW(groups, **options_of_adam(config), fused=runs_fused(groups))


@optimizers.register("schedule_free_adamw", ScheduleFreeAdamWConfig)
def schedule_free_adamw(config: ScheduleFreeAdamWConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    """AdamW whose averaged weights take the place of a schedule: Defazio et al. 2024, arXiv:2405.15682.

    The implementation is the authors' package ``schedulefree``, an optional extra. It trains at points y between the
    plain sequence z and its average x; validation and checkpoints see x. Its weights of the average follow the rate
    during the warm-up.
    """
    try:
        from schedulefree import AdamWScheduleFree
    except ImportError:
        raise UsageError(
            "optimizer schedule_free_adamw needs a package that is not installed: pip install 'nmt-toolkit[schedulefree]'"
        ) from None
    optimizer: torch.optim.Optimizer = AdamWScheduleFree(groups, **options_of_adam(config))
    return optimizer


@optimizers.register("adafactor", AdafactorConfig)
def adafactor(config: AdafactorConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    """Second moments of a matrix from its rows and columns: Shazeer and Stern 2018, arXiv:1804.04235.

    torch's implementation of algorithm 4: update clipping, a decay of the averages that grows with the updates (section 7),
    no momentum. A step is a share of the parameter's own size (section 8), and this share is min(lr, 1 / sqrt(update)):
    the rate is an upper bound. torch has no switch for either, and keeps averages of the squares, not sums, which is the
    same.
    """
    return torch.optim.Adafactor(
        groups,
        lr=config.base_rate,
        beta2_decay=config.decay_rate,
        eps=(None, config.min_scale),
        d=config.clip_threshold,
        weight_decay=config.weight_decay,
    )


def options_of_adam(config: AdamConfig) -> dict[str, Any]:
    """By torch's names."""
    first, second = config.betas
    return {"lr": config.base_rate, "betas": (first, second), "eps": config.eps, "weight_decay": config.weight_decay}


def runs_fused(groups: ParameterGroups) -> bool | None:
    """Whether torch's kernels do a whole update of all parameters at once: on a GPU; None leaves the choice to torch."""
    parameters = [parameter for group in groups for _, parameter in group["params"]]
    return True if all(p.is_cuda and p.is_floating_point() for p in parameters) else None
