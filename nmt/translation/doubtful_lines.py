"""Find lines that a model is unlikely to translate well: mostly unknown tokens, or already in the target language."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from nmt.config.choices import WORD_START
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import Direction, SourceToken
from nmt.data.text.languages import looks_like
from nmt.data.vocabulary import UNK, Ids
from nmt.errors import quantity

logger = logging.getLogger("nmt.translation")

SHOWN = 10  # numbers of lines in a warning


@dataclass
class DoubtfulLines:
    """Collect the numbers of such lines, counted from 1, for one warning of each kind and direction."""

    pair: LanguagePair
    unknown: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # by source language
    in_target_language: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        # A model that reads only the target language may know more source languages than its pair names.
        self._knows_source = self.pair.languages is None or self.pair.languages.source is SourceToken.source
        self._space = self.pair.source.vocabulary.id(WORD_START)  # of some tokenizers, before an unknown word

    def look_at(self, number: int, text: str, ids: Ids, direction: Direction) -> None:
        unknown = int(np.count_nonzero(ids == UNK))
        spaces = 0 if self._space == UNK else int(np.count_nonzero(ids == self._space))
        if 2 * unknown > len(ids) - spaces:
            self.unknown[direction.source_lang].append(number)
        elif self._knows_source and looks_like(text, direction.target_lang, direction.source_lang):
            self.in_target_language[direction.names].append(number)

    def warn(self) -> None:
        """Log the warnings, and forget the lines."""
        for source, numbers in self.unknown.items():
            logger.warning(
                f"{_lines(numbers)}: most tokens are unknown to the model; check that this is text in {source}, "
                f"preprocessed like the training text"
            )
        for (source, target), numbers in self.in_target_language.items():
            logger.warning(
                f"{_lines(numbers)}: the text looks like {target}, the target language; the model translates from {source} "
                f"to {target}"
            )
        self.unknown.clear()
        self.in_target_language.clear()


def _lines(numbers: list[int]) -> str:
    """``3 lines (2, 5, 9)``."""
    more = f" and {len(numbers) - SHOWN:,} more" if len(numbers) > SHOWN else ""
    return f"{quantity(len(numbers), 'line')} ({', '.join(map(str, numbers[:SHOWN]))}{more})"
