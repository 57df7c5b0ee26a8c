"""The options of the criterion ``word_distillation``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.label_smoothed_cross_entropy_config import LabelSmoothedCrossEntropyConfig
from nmt.errors import UsageError


@criterions.declare("word_distillation")
@dataclass
class WordDistillationConfig(LabelSmoothedCrossEntropyConfig):
    """The paper's weight of the teacher, a half."""

    label_smoothing: float = option(0.0, help="share of probability spread evenly", flag="--label-smoothing")
    teacher: str = option("", help="run folder or checkpoint of the model to learn from", flag="--teacher")
    distillation_weight: float = option(
        0.5, help="weight of the teacher's distribution; the rest is that of the targets", flag="--distillation-weight"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.distillation_weight <= 1.0:
            raise UsageError(f"criterion.distillation_weight={self.distillation_weight} must lie between 0 and 1")
