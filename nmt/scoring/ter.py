"""Translation edit rate: edits and shifts per reference word, lower is better (Snover et al. 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.scoring import Score, TextOptions, sacre, scorers


@dataclass
class TerConfig:
    """No options of its own: the text options of all scorers say enough."""


@scorers.register("ter", TerConfig)
class Ter:
    """sacreBLEU's figure.

    Case counts unless ``lowercase`` is set, as with the other metrics (the sacrebleu command differs: it lower-cases
    TER unless told otherwise). Words are cut by TER's own rules: ``tokenize`` only decides whether the East Asian ones
    apply.
    """

    higher_is_better = False

    def __init__(self, config: TerConfig, text: TextOptions) -> None:
        self._metric = sacre.ter(text.tokenize, text.lowercase)

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        return sacre.corpus_score(self._metric, hypotheses, references, higher_is_better=self.higher_is_better)
