"""Options of single parameters: which are trained, at which rate, and which weight decay shrinks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nmt.config.option import flag, option
from nmt.errors import UsageError

LARGEST_FACTOR = 1e4


class Decayed(Enum):
    """What weight decay applies to."""

    all = "all"
    matrices = "matrices"


@dataclass
class ParametersConfig:
    """Patterns are those of a shell (``*``, ``?``, ``[abc]``) and must match a whole name; ``*`` crosses dots."""

    freeze: list[str] = flag([], help="parameters that are not trained, by patterns of their names: 'encoder.*'")
    lr_scales: list[str] = flag(
        [], help="pattern=factor: multiplies the rate of these parameters; the last that matches counts"
    )
    decay: Decayed = option(
        Decayed.all,
        help="what weight decay applies to: all, or matrices, which spares biases, norms, other vectors and starting states",
        flag="--weight-decay-of",
    )

    def __post_init__(self) -> None:
        self.factors()

    def factors(self) -> list[tuple[str, float]]:
        """``lr_scales`` taken apart."""
        return [_pattern_and_factor(item) for item in self.lr_scales]


def _pattern_and_factor(item: str) -> tuple[str, float]:
    pattern, _, number = item.rpartition("=")
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not pattern or not 0.0 < factor <= LARGEST_FACTOR:
        raise UsageError(
            f"parameters.lr_scales={item} must be a pattern, '=' and a factor above 0 and at most {LARGEST_FACTOR:g} "
            f"(--lr-scales 'encoder.*=0.1'); what is not to be trained is given to --freeze"
        )
    return pattern, factor
