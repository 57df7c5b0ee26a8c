"""Back-pointers of a beam, and following them once, when everything is finished.

Copying each hypothesis' tokens at each step costs time quadratic in the length; a step here only remembers, for each
slot of the beam, its token and the slot that it continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.hypothesis import Floats, Hypothesis, Ints
from nmt.data.vocabulary import EOS


@dataclass(frozen=True)
class Ending:
    """One finished hypothesis, as a place in the history."""

    sentence: int
    length: int  # tokens, eos included
    parent: int  # the slot that the eos continues
    total: float
    score: float
    eos_score: float
    finished: bool


@dataclass(frozen=True)
class _Step:
    sentences: Ints  # [b] those still in the batch
    attention: Floats | None  # [b * K, S]
    parents: Ints  # [b, K]
    tokens: Ints  # [b, K]
    scores: Floats  # [b, K] log-probability of each token


class History:
    """What each step of a beam chose."""

    def __init__(self, num_sentences: int, beam: int) -> None:
        self._shape = (num_sentences, beam)
        self._steps: list[_Step] = []

    def append(self, sentences: Ints, parents: Ints, tokens: Ints, scores: Floats, attention: Floats | None) -> None:
        """``sentences`` [b] are the rows of this step; the others [b, K]; attention [b*K, S] of the parents."""
        self._steps.append(_Step(sentences, attention, parents, tokens, scores))

    def hypotheses(
        self, endings: Sequence[Ending], source_lengths: Ints, *, ranked_by_model: bool = True
    ) -> list[Hypothesis]:
        """The hypotheses that end at ``endings``, in that order; ``ranked_by_model``: totals are log-probabilities."""
        steps = len(self._steps)
        sentence = np.array([ending.sentence for ending in endings], dtype=np.int64)
        slot = np.array([ending.parent for ending in endings], dtype=np.int64)
        length = np.array([ending.length for ending in endings], dtype=np.int64)
        slots = np.zeros((steps, len(endings)), dtype=np.int64)  # the slot that step t continues, for attention
        tokens = np.full((len(endings), steps), EOS, dtype=np.int64)
        scores = np.zeros((len(endings), steps), dtype=np.float32)
        for t in range(steps - 1, -1, -1):
            step = self._steps[t]
            before = np.flatnonzero(length - 1 > t)  # at their eos, hypotheses stand in their parent's slot already
            tokens[before, t] = self._spread(step, step.tokens)[sentence[before], slot[before]]
            scores[before, t] = self._spread(step, step.scores)[sentence[before], slot[before]]
            slot[before] = self._spread(step, step.parents)[sentence[before], slot[before]]
            slots[t] = slot
        scores[np.arange(len(endings)), length - 1] = [ending.eos_score for ending in endings]
        attention = self._attention(sentence, slots)
        widths = source_lengths.tolist()
        return [
            Hypothesis(
                tokens=tokens[row, : ending.length].copy(),
                score=ending.score,
                log_probability=ending.total if ranked_by_model else float(scores[row, : ending.length].sum()),
                token_scores=scores[row, : ending.length].copy(),
                attention=_crop(attention, row, ending.length, widths[ending.sentence]),
                finished=ending.finished,
            )
            for row, ending in enumerate(endings)
        ]

    def _attention(self, sentence: Ints, slots: Ints) -> Floats | None:
        """[endings, steps, S], or None when it was not collected."""
        rows = [
            self._spread(step, step.attention.reshape(*step.tokens.shape, -1))[sentence, slots[t]]
            for t, step in enumerate(self._steps)
            if step.attention is not None
        ]
        return np.stack(rows, 1) if rows else None

    def _spread(self, step: _Step, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[b, K, ...] of the sentences still there -> [B, K, ...] of all."""
        if len(step.sentences) == self._shape[0]:  # in their order: nobody has left
            return values
        full = np.zeros((*self._shape, *values.shape[2:]), dtype=values.dtype)
        full[step.sentences] = values
        return full


def _crop(attention: Floats | None, row: int, length: int, width: int) -> Floats | None:
    return None if attention is None else attention[row, :length, :width].copy()
