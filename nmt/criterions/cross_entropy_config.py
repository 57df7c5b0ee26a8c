"""The options of the criterion ``cross_entropy``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.config.roles import CriterionConfig
from nmt.criterions import criterions


@criterions.declare("cross_entropy")
@dataclass
class CrossEntropyConfig(CriterionConfig):
    """Negative log-likelihood, without smoothing."""

    label_smoothing = 0.0  # an option of those that extend it

    auxiliary_weights: dict[str, float] = option(
        {}, help="weight of each auxiliary loss that the model reports, by name; 1 unless given"
    )
