"""ChrF2: F-score of character n-grams up to six, recall weighs twice (Popovic 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.scoring import Score, TextOptions, sacre, scorers


@dataclass
class ChrFConfig:
    """No options of its own: the text options of all scorers say enough."""


@scorers.register("chrf", ChrFConfig)
class ChrF:
    """sacreBLEU's figure.

    Characters need no tokenizer: ``tokenize`` changes nothing, the signature has none.
    """

    higher_is_better = True

    def __init__(self, config: ChrFConfig, text: TextOptions) -> None:
        self._metric = sacre.chrf(text.lowercase)

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        return sacre.corpus_score(self._metric, hypotheses, references, higher_is_better=self.higher_is_better)
