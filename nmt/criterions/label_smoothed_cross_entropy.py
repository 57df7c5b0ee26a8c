"""Cross-entropy against smoothed targets: Szegedy et al. 2016; Vaswani et al. 2017, section 5.4."""

from __future__ import annotations

from nmt.criterions import criterions
from nmt.criterions.cross_entropy import TokenCrossEntropy
from nmt.criterions.label_smoothed_cross_entropy_config import LabelSmoothedCrossEntropyConfig

criterions.register("label_smoothed_cross_entropy", LabelSmoothedCrossEntropyConfig)(TokenCrossEntropy)
