"""Length penalties: what a hypothesis' log-probability is divided by to become its score."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from nmt.data.hypothesis import Floats

Length = TypeVar("Length", float, "Floats")


class LengthPenalty(Enum):
    """Which formula divides the log-probability."""

    gnmt = "gnmt"  # ((5 + length) / 6) ^ alpha: Wu et al. 2016, equation 14; the Transformer paper's
    power = "power"  # length ^ alpha: fairseq's

    def __call__(self, length: Length, alpha: float) -> Length:
        """The divisor of a hypothesis of ``length`` tokens, eos included; alpha 0 divides by one."""
        divisor: Any = ((5 + length) / 6) ** alpha if self is LengthPenalty.gnmt else length**alpha
        return divisor  # type: ignore[no-any-return]
