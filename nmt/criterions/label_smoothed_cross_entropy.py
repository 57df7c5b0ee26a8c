"""Cross-entropy against smoothed targets: Szegedy et al. 2016; Vaswani et al. 2017, section 5.4."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.cross_entropy import CrossEntropyConfig, TokenCrossEntropy
from nmt.errors import UsageError


@dataclass
class LabelSmoothedCrossEntropyConfig(CrossEntropyConfig):
    """A share of the target's probability is spread evenly over the whole vocabulary (torch's definition)."""

    label_smoothing: float = option(0.1, help="share of probability spread evenly", flag="--label-smoothing")

    def __post_init__(self) -> None:
        if not 0.0 <= self.label_smoothing < 1.0:
            raise UsageError(f"criterion.label_smoothing={self.label_smoothing} must be at least 0 and less than 1")


@criterions.register("label_smoothed_cross_entropy", LabelSmoothedCrossEntropyConfig)
def build(config: LabelSmoothedCrossEntropyConfig) -> TokenCrossEntropy:
    return TokenCrossEntropy(config.label_smoothing, config.auxiliary_weights)
