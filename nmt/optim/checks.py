"""Checks of options that several optimizers have."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.config.checks import require_not_negative, require_positive, require_share
from nmt.errors import UsageError

LARGEST_RATE = 1e4  # far above any that works: beyond it single precision overflows after a few updates


def check_rates(lr: float | None, weight_decay: float, *, name: str = "lr") -> None:
    """``name``: the option that ``lr`` is the value of."""
    require_positive("optimizer", **{name: lr})
    require_not_negative("optimizer", weight_decay=weight_decay)
    for option, rate in ((name, lr), ("weight_decay", weight_decay)):
        if rate is not None and rate > LARGEST_RATE:
            smaller = f"give a smaller --{option.replace('_', '-')}"
            raise UsageError(f"optimizer.{option}={rate} must be at most {LARGEST_RATE:g}; {smaller}")


def check_shares(**shares: float) -> None:
    """Of what is kept from one update to the next."""
    require_share("optimizer", **shares)


def check_betas(betas: Sequence[float], example: str) -> None:
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise UsageError(f"optimizer.betas={list(betas)} must be two numbers of at least 0 and less than 1 ({example})")
