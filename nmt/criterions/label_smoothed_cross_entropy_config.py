"""The options of the criterion ``label_smoothed_cross_entropy``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_share
from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.cross_entropy_config import CrossEntropyConfig


@criterions.declare("label_smoothed_cross_entropy")
@dataclass
class LabelSmoothedCrossEntropyConfig(CrossEntropyConfig):
    """A share of the target's probability is spread evenly over the whole vocabulary (torch's definition)."""

    label_smoothing: float = option(0.1, help="share of probability spread evenly", flag="--label-smoothing")

    def __post_init__(self) -> None:
        require_share("criterion", label_smoothing=self.label_smoothing)
