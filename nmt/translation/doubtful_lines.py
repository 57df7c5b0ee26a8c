"""Find lines that a model is unlikely to translate well: mostly unknown tokens, or already in the target language."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np

from nmt.config.choices import WORD_START
from nmt.data.language_pair import LanguagePair
from nmt.data.text.languages import looks_like
from nmt.data.vocabulary import UNK, Ids
from nmt.errors import quantity

logger = logging.getLogger("nmt.translation")

SHOWN = 10  # numbers of lines in a warning


@dataclass
class DoubtfulLines:
    """Collect the numbers of such lines, counted from 1, for one warning of each kind."""

    pair: LanguagePair
    unknown: list[int] = field(default_factory=list)
    in_target_language: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._space = self.pair.source.vocabulary.id(WORD_START)  # of some tokenizers, before an unknown word

    def look_at(self, number: int, text: str, ids: Ids) -> None:
        unknown = int(np.count_nonzero(ids == UNK))
        spaces = 0 if self._space == UNK else int(np.count_nonzero(ids == self._space))
        if 2 * unknown > len(ids) - spaces:
            self.unknown.append(number)
        elif self.pair.tag is None and looks_like(text, self.pair.target_lang, self.pair.source_lang):
            self.in_target_language.append(number)

    def warn(self) -> None:
        """Log the warnings, and forget the lines."""
        source, target = self.pair.source_lang, self.pair.target_lang
        if self.unknown:
            logger.warning(
                f"{_lines(self.unknown)}: most tokens are unknown to the model; check that this is text in {source}, "
                f"preprocessed like the training text"
            )
        if self.in_target_language:
            logger.warning(
                f"{_lines(self.in_target_language)}: the text looks like {target}, the target language; the model "
                f"translates from {source} to {target}"
            )
        self.unknown, self.in_target_language = [], []


def _lines(numbers: list[int]) -> str:
    """``3 lines (2, 5, 9)``."""
    more = f" and {len(numbers) - SHOWN:,} more" if len(numbers) > SHOWN else ""
    return f"{quantity(len(numbers), 'line')} ({', '.join(map(str, numbers[:SHOWN]))}{more})"
