"""The options of objectives over whole sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import option
from nmt.config.roles import CriterionConfig
from nmt.errors import UsageError


class RewardKind(Enum):
    """What a drawn translation is rewarded by; both count the vocabulary's pieces, not words."""

    gleu = "gleu"  # Wu et al. 2016, section 5
    bleu = "bleu"  # smoothed as by Lin and Och 2004


@dataclass
class SequenceConfig(CriterionConfig):
    """How an objective over whole sentences draws translations."""

    samples: int = option(15, help="translations drawn of each training sentence", flag="--samples")
    reward: RewardKind = option(RewardKind.gleu, help="reward of a translation: gleu or bleu", flag="--reward")
    max_len_a: float = option(1.0, help="longest one in pieces: max_len_a * source length + max_len_b")
    max_len_b: float = option(20, help="see max_len_a")
    auxiliary_weights: dict[str, float] = option(
        {}, help="weight of each auxiliary loss that the model reports, by name; 1 unless given"
    )

    def __post_init__(self) -> None:
        require_positive("criterion", samples=self.samples)
        require_not_negative("criterion", max_len_a=self.max_len_a)
        if not 1 <= self.max_len_b < math.inf:
            raise UsageError(f"criterion.max_len_b={self.max_len_b} must be at least 1: a translation has a piece")
