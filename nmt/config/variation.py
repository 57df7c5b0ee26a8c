"""Options of training on text that differs from epoch to epoch."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import refuse, require_not_negative, require_positive, require_share
from nmt.config.choices import Sides
from nmt.config.option import flag


@dataclass
class VariationConfig:
    """Random variation of each sentence pair in each epoch. Without these options pairs do not vary."""

    bpe_dropout: float = flag(
        0.0, help="probability that a merge of byte-pair encoding is left out; 0.1 is usual, 0 cuts words as always"
    )
    unigram_alpha: float | None = flag(
        None,
        help="pieces of a unigram model are drawn by their probability to this power; 0.2 is usual; null: the best ones",
    )
    sampled_sides: Sides = flag(Sides.both, help="whose pieces these two options draw: both, source or target")
    augment: list[str] = flag(
        [],
        help="NAME=SHARE: changes the text of this share of the pairs: upper_case, title_case, typos, "
        "drop_final_punctuation, noise_lines, or one of a plugin; NAME=SHARE:OPTION=VALUE sets an option of it",
    )
    headroom: float | None = flag(
        None,
        help="batches are planned for sentences so many times as long as usual; null: each epoch is drawn once beforehand, "
        "and planned on what was drawn",
    )
    readers: int | None = flag(
        None,
        help="processes that draw the text beside training; 0: training does it itself; null: 2 with a GPU, else 0",
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
        """Whether tokens are sampled."""
        return self.bpe_dropout > 0 or self.unigram_alpha is not None

    @property
    def is_on(self) -> bool:
        """Whether anything differs from epoch to epoch."""
        return self.samples or bool(self.augment)
