"""When one validation is better than another."""

from __future__ import annotations

import math


def is_better(value: float, best: float | None, *, higher_is_better: bool) -> bool:
    """Whether ``value`` improves on ``best`` (None: there is none yet). A value that is no number never does."""
    if not math.isfinite(value):
        return False
    return best is None or (value > best if higher_is_better else value < best)
