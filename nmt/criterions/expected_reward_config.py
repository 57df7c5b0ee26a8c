"""The options of the criterion ``expected_reward``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative
from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.sequences_config import SequenceConfig
from nmt.errors import UsageError


@criterions.declare("expected_reward")
@dataclass
class ExpectedRewardConfig(SequenceConfig):
    """The paper's constants. It refines a model that was trained by likelihood."""

    likelihood_weight: float = option(
        0.017, help="weight of the log-likelihood beside the expected reward", flag="--likelihood-weight"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("criterion", likelihood_weight=self.likelihood_weight)
        if self.samples == 1:
            raise UsageError(
                "criterion.samples=1 leaves nothing to compare a reward with: the baseline is the mean of a sentence's "
                "translations; draw at least two (--samples 2)"
            )
