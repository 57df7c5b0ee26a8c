"""Corpus BLEU of up to four-grams, exponential smoothing (Papineni et al. 2002; Post 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.scoring import Score, TextOptions, sacre, scorers


@dataclass
class BleuConfig:
    """No options of its own: the text options of all scorers say enough."""


@scorers.register("bleu", BleuConfig)
class Bleu:
    """sacreBLEU's figure.

    Both options count: ``tokenize`` is applied to both sides.
    """

    higher_is_better = True

    def __init__(self, config: BleuConfig, text: TextOptions) -> None:
        self._metric = sacre.bleu(text.tokenize, text.lowercase)

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        return sacre.corpus_score(self._metric, hypotheses, references, higher_is_better=self.higher_is_better)
