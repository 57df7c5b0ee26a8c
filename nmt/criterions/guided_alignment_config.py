"""The options of the criterion ``guided_alignment``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.label_smoothed_cross_entropy_config import LabelSmoothedCrossEntropyConfig


@criterions.declare("guided_alignment")
@dataclass
class GuidedAlignmentConfig(LabelSmoothedCrossEntropyConfig):
    """Which attention is guided, and how strongly. By default it is the one that --print-alignment shows."""

    needs_alignments = True

    alignment_weight: float = option(
        0.05, help="weight of the alignments' cross-entropy beside that of the targets", flag="--alignment-lambda"
    )
    alignment_layer: int | None = option(
        None, help="decoder layer whose attention is guided, from 1; null: the last", flag="--alignment-layer"
    )
    alignment_heads: int | None = option(
        None, help="guide the mean of its first so many heads; null: of all", flag="--alignment-heads"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("criterion", alignment_weight=self.alignment_weight)
        require_positive("criterion", alignment_layer=self.alignment_layer, alignment_heads=self.alignment_heads)
