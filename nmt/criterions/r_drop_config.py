"""The options of the criterion ``r_drop``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative
from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.label_smoothed_cross_entropy_config import LabelSmoothedCrossEntropyConfig


@criterions.declare("r_drop")
@dataclass
class RDropConfig(LabelSmoothedCrossEntropyConfig):
    """The paper's weight for translation, 5. Without dropout in the model there is nothing to agree on."""

    divergence_weight: float = option(
        5.0, help="weight of the divergence between the two passes: alpha", flag="--rdrop-alpha"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("criterion", divergence_weight=self.divergence_weight)
