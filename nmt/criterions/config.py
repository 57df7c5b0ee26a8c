"""The options of all criterions; each declaration names the module with the builder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from nmt.config.checks import require_not_negative, require_positive, require_share
from nmt.config.option import flag, option
from nmt.config.roles import CriterionConfig
from nmt.criterions import criterions
from nmt.errors import UsageError


@dataclass(kw_only=True)
class AuxiliaryLossConfig(CriterionConfig):
    """The weights of auxiliary losses, an option of all criterions."""

    auxiliary_weights: dict[str, float] = option(
        {}, help="Weight of each auxiliary loss of the model, by name; 1 for losses not named"
    )

    def __post_init__(self) -> None:
        require_not_negative("criterion.auxiliary_weights", **self.auxiliary_weights)


@criterions.declare("cross_entropy", "cross_entropy")
@dataclass
class CrossEntropyConfig(AuxiliaryLossConfig):
    """Negative log-likelihood, without smoothing."""

    uses_weights = True
    label_smoothing = 0.0  # an option in subclasses


@criterions.declare("label_smoothed_cross_entropy", "cross_entropy")
@dataclass
class LabelSmoothedCrossEntropyConfig(CrossEntropyConfig):
    """Cross-entropy with label smoothing over the whole vocabulary (torch's definition)."""

    label_smoothing: float = flag(0.1, help="Fraction of probability spread evenly over the vocabulary")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share("criterion", label_smoothing=self.label_smoothing)


@criterions.declare("guided_alignment", "cross_entropy")
@dataclass
class GuidedAlignmentConfig(LabelSmoothedCrossEntropyConfig):
    """The guided attention and its weight. The default is the attention that --print-alignment shows."""

    needs_alignments = True

    alignment_weight: float = option(0.05, help="Weight of the alignment cross-entropy", flag="--alignment-lambda")
    alignment_layer: int | None = flag(None, help="Decoder layer with guided attention, counted from 1; null: the last")
    alignment_heads: int | None = flag(None, help="Number of heads, from the first, whose mean is guided; null: all")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("criterion", alignment_weight=self.alignment_weight)
        require_positive("criterion", alignment_layer=self.alignment_layer, alignment_heads=self.alignment_heads)


@criterions.declare("r_drop", "cross_entropy")
@dataclass
class RDropConfig(LabelSmoothedCrossEntropyConfig):
    """The default is the paper's weight for translation. Without dropout, both passes are equal."""

    divergence_weight: float = option(
        5.0, help="Weight alpha of the divergence between the two passes", flag="--rdrop-alpha"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("criterion", divergence_weight=self.divergence_weight)


@criterions.declare("word_distillation", "cross_entropy")
@dataclass
class WordDistillationConfig(LabelSmoothedCrossEntropyConfig):
    """The default weight of the teacher is the paper's."""

    label_smoothing: float = flag(0.0, help="Fraction of probability spread evenly over the vocabulary")
    teacher: str = flag("", help="Run folder or checkpoint of the teacher model")
    distillation_weight: float = flag(
        0.5, help="Weight of the teacher's distribution, from 0 to 1; the targets have the rest"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.distillation_weight <= 1.0:
            raise UsageError(f"criterion.distillation_weight={self.distillation_weight} must lie between 0 and 1")


class RewardKind(Enum):
    """The reward of a sampled translation, over tokens, not words."""

    gleu = "gleu"  # Wu et al. 2016, section 5
    bleu = "bleu"  # smoothed as by Lin and Och 2004


@dataclass
class SequenceConfig(AuxiliaryLossConfig):
    """Options of criterions that sample translations."""

    samples: int = flag(15, help="Number of translations sampled per training sentence")
    reward: RewardKind = flag(RewardKind.gleu, help="Reward of a sampled translation: gleu or bleu")
    max_len_a: float = option(
        1.0, help="Factor in the maximum sample length in tokens: max_len_a * source length + max_len_b"
    )
    max_len_b: float = option(20, help="Constant in the maximum sample length, in tokens; see max_len_a")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("criterion", samples=self.samples)
        require_not_negative("criterion", max_len_a=self.max_len_a)
        if not 1 <= self.max_len_b < math.inf:
            raise UsageError(f"criterion.max_len_b={self.max_len_b} must be at least 1 token")


@criterions.declare("expected_reward", "sequences")
@dataclass
class ExpectedRewardConfig(SequenceConfig):
    """The defaults are the paper's. Initialize from a model trained with cross-entropy."""

    likelihood_weight: float = flag(0.017, help="Weight of the log-likelihood")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("criterion", likelihood_weight=self.likelihood_weight)
        if self.samples == 1:
            raise UsageError(
                "criterion.samples=1 gives zero gradients: the baseline is the mean reward of a sentence's samples; "
                "set at least two (--samples 2)"
            )


@criterions.declare("minimum_risk", "sequences")
@dataclass
class MinimumRiskConfig(SequenceConfig):
    """The defaults are the paper's. Initialize from a model trained with cross-entropy."""

    samples: int = flag(100, help="Number of translations sampled per training sentence")
    reward: RewardKind = flag(RewardKind.bleu, help="Reward of a sampled translation: gleu or bleu")
    sharpness: float = option(0.005, help="Exponent alpha of the samples' probabilities", flag="--risk-sharpness")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("criterion", sharpness=self.sharpness)
