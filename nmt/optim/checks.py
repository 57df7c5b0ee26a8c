"""What options of several optimizers must satisfy."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.errors import UsageError


def check_rates(lr: float | None, weight_decay: float) -> None:
    if lr is not None and lr <= 0:
        raise UsageError(f"optimizer.lr={lr} must be greater than zero (--lr)")
    if weight_decay < 0:
        raise UsageError(f"optimizer.weight_decay={weight_decay} must not be negative (--weight-decay)")


def check_adam(lr: float | None, betas: Sequence[float], eps: float, weight_decay: float) -> None:
    check_rates(lr, weight_decay)
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise UsageError(
            f"optimizer.betas={list(betas)} must be two numbers of at least 0 and less than 1 (--adam-betas 0.9,0.98)"
        )
    if eps < 0:
        raise UsageError(f"optimizer.eps={eps} must not be negative (--adam-eps)")
