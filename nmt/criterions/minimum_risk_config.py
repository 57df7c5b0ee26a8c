"""The options of the criterion ``minimum_risk``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_positive
from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.sequences_config import RewardKind, SequenceConfig


@criterions.declare("minimum_risk")
@dataclass
class MinimumRiskConfig(SequenceConfig):
    """The paper's constants. It refines a model that was trained by likelihood."""

    samples: int = option(100, help="translations drawn of each training sentence", flag="--samples")
    reward: RewardKind = option(RewardKind.bleu, help="reward of a translation: gleu or bleu", flag="--reward")
    sharpness: float = option(
        0.005, help="exponent of the probabilities among the candidates: alpha", flag="--risk-sharpness"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("criterion", sharpness=self.sharpness)
