"""Options of training on text that differs from epoch to epoch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import refuse, require_not_negative, require_positive, require_share
from nmt.config.choices import Sides
from nmt.config.option import ShortRepr, flag


@dataclass
class VariationConfig(ShortRepr):
    """Random variation of each sentence pair in each epoch. Without these options pairs do not vary."""

    bpe_dropout: float = flag(0.0, help="Probability of skipping a BPE merge; 0.1 is usual; 0: no dropout")
    unigram_alpha: float | None = flag(
        None,
        help="Exponent of segmentation probabilities for sampling from a unigram model; 0.2 is usual; "
        "null: best segmentation",
    )
    sampled_sides: Sides = flag(
        Sides.both, help="Sides that --bpe-dropout and --unigram-alpha apply to: both, source or target"
    )
    augment: list[str] = flag(
        [],
        help="Augmentations as NAME=SHARE (share of pairs) or NAME=SHARE:OPTION=VALUE: drop_final_punctuation, noise_lines, "
        "title_case, typos, upper_case, drop_words, mask_words, shuffle_words, mask_spans, shuffle_sentences or a plugin's",
    )
    headroom: float | None = flag(
        None,
        help="Assumed growth factor of sentence lengths for planning batches; null: exact lengths, measured "
        "before each epoch",
    )
    readers: int | None = flag(
        None,
        help="Number of readers that prepare varied text; 0: the training process does it; null: 2 with a GPU, else 0",
    )

    def __post_init__(self) -> None:
        require_share("variation", bpe_dropout=self.bpe_dropout)
        require_positive("variation", unigram_alpha=self.unigram_alpha)
        require_not_negative("variation", readers=self.readers or 0)
        refuse(
            (
                self.bpe_dropout and self.unigram_alpha is not None,
                f"variation.bpe_dropout={self.bpe_dropout} and variation.unigram_alpha={self.unigram_alpha} exclude each "
                "other; set one of --bpe-dropout and --unigram-alpha",
            ),
            (
                self.headroom is not None and not 1.0 <= self.headroom < 100.0,
                f"variation.headroom={self.headroom} must be at least 1, and less than 100 (--headroom)",
            ),
        )

    @property
    def samples(self) -> bool:
        return self.bpe_dropout > 0 or self.unigram_alpha is not None

    @property
    def is_on(self) -> bool:
        """Whether anything differs from epoch to epoch."""
        return self.samples or bool(self.augment)
