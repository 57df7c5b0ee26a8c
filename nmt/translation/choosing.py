"""Choosing among the translations that a search found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from nmt.scoring import TextOptions
from nmt.scoring.pairwise import SIMILARITIES
from nmt.translation.lines import Translation


class MinimumBayesRisk:
    """The translation that is most like all the others: Kumar and Byrne 2004; of samples, Eikema and Aziz 2020.

    Each hypothesis' score becomes its expected similarity, 0 .. 100: the mean over all hypotheses of the line, itself
    included, of how good it is if that one is right. Hypotheses that a search found (``posterior``) weigh as much as the
    model finds them probable among each other; samples weigh alike, since they come as often as they are probable.
    """

    def __init__(self, metric: str, nbest: int, *, posterior: bool) -> None:
        """``nbest``: how many are shown of a line."""
        self._similarity = SIMILARITIES[metric](TextOptions())
        self._nbest = nbest
        self._posterior = posterior

    def __call__(self, translations: Iterable[Translation]) -> Iterator[Translation]:
        for translation in translations:
            yield self._ranked(translation)

    def _ranked(self, translation: Translation) -> Translation:
        hypotheses = translation.hypotheses
        totals = np.array([sum(one.token_scores) for one in hypotheses])
        weights = np.exp(totals - totals.max()) if self._posterior else np.ones(len(hypotheses))
        expected = self._similarity([one.text for one in hypotheses]) @ (weights / weights.sum())
        scored = [dataclasses.replace(one, score=float(value)) for one, value in zip(hypotheses, expected)]
        return dataclasses.replace(translation, hypotheses=sorted(scored, key=lambda one: -one.score)[: self._nbest])
