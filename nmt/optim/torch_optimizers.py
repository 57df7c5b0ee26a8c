"""Builders of torch's optimizers, and of the package ``schedulefree``."""

from __future__ import annotations

from typing import Any

import torch

from nmt.devices.faults import FastPath, avoids
from nmt.devices.kinds import device_of
from nmt.errors import needing
from nmt.optim import ParameterGroups, optimizers
from nmt.optim.config import AdafactorConfig, AdamConfig, AdamWConfig, NagConfig, ScheduleFreeAdamWConfig, SgdConfig


@optimizers.register("sgd", SgdConfig)
@optimizers.register("nag", NagConfig)
def sgd(config: SgdConfig | NagConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    """Stochastic gradient descent, and Nesterov's accelerated gradient (``nag``).

    fairseq's ``nag`` follows Bengio et al. 2012, arXiv:1212.0901, equation 7: p <- p + m^2 v - (1 + m) lr g and
    v <- m v - lr g, where v is rescaled when the learning rate changes. torch stores v / lr, which gives the same steps, but
    its weight decay is an L2 penalty.
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
    """AdamW with averaged weights instead of a schedule: Defazio et al. 2024, arXiv:2405.15682.

    The implementation is the authors' package ``schedulefree``, an optional dependency. It trains at points y between the
    sequence z and its average x; validation and checkpoints use x. During the warmup, the weights of the average depend on
    the learning rate.
    """
    with needing("schedulefree", "optimizer schedule_free_adamw"):
        from schedulefree import AdamWScheduleFree
    optimizer: torch.optim.Optimizer = AdamWScheduleFree(groups, **options_of_adam(config))
    return optimizer


@optimizers.register("adafactor", AdafactorConfig)
def adafactor(config: AdafactorConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    """Adafactor, with factored second moments: Shazeer and Stern 2018, arXiv:1804.04235.

    torch implements algorithm 4: update clipping, an increasing decay of the averages (section 7), no momentum. A step is
    relative to the parameter's size (section 8), by min(lr, 1 / sqrt(update)): the learning rate is an upper bound. torch
    has no options for either.
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
    """Return Adam's options by torch's names."""
    first, second = config.betas
    return {"lr": config.base_rate, "betas": (first, second), "eps": config.eps, "weight_decay": config.weight_decay}


def runs_fused(groups: ParameterGroups) -> bool | None:
    """Whether torch updates all parameters by a fused kernel: True on most GPUs; None: torch's default."""
    parameters = [parameter for group in groups for _, parameter in group["params"]]
    fused = all(device_of(p).skips_updates and p.is_floating_point() for p in parameters)
    return True if fused and not any(avoids(p.device, FastPath.fused_optimizer) for p in parameters) else None
