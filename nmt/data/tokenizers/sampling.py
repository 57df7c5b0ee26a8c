"""What draws other pieces for a text each time has in common: words are cut one by one, each by random numbers of its own.

No text is needed: the pieces of a sentence spell it.

sentencepiece samples as well, but whatever seed it is given, each process draws something else (0.2.3): a run that goes on
would see other text. So all draws are made here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from nmt.data.randomness import STEP, Bits, mixed
from nmt.data.vocabulary import Flags, Ids, Ints


class Sampler(ABC):
    """Draws other pieces for what given pieces spell."""

    def __init__(self, begins_word: Flags, ends_word: Flags | None = None) -> None:
        """Of each id, whether the piece begins a word, and whether it ends one; None: pieces do not show that."""
        self._begins_word = begins_word
        self._ends_word = ends_word

    def __call__(self, ids: Ids, lengths: Ints, seeds: Bits) -> tuple[Ids, Ints]:
        """Of several sentences the new ids, one after the other, and how many each has; ``ids`` and ``lengths`` are
        likewise what they have now, without bos and eos. What is drawn for a sentence depends on its pieces and on its
        seed alone."""
        starts = starts_of(lengths)
        begins = self._begins_word[ids]
        begins[starts[lengths > 0]] = True
        if self._ends_word is not None:
            begins[1:] |= self._ends_word[ids[:-1]]
        words = np.flatnonzero(begins)
        if not len(words):
            return ids, lengths
        sentences = np.repeat(np.arange(len(lengths)), lengths)[words]
        place = np.arange(len(words)) - np.searchsorted(words, starts)[sentences]  # of a word in its sentence
        own = mixed(seeds[sentences] + (place + 1).astype(np.uint64) * np.uint64(STEP))
        drawn, counts = self.draw(ids, np.diff(np.append(words, len(ids))), own)
        return drawn, np.bincount(sentences, weights=counts, minlength=len(lengths)).astype(np.int64)

    @abstractmethod
    def draw(self, ids: Ids, lengths: Ints, seeds: Bits) -> tuple[Ids, Ints]:
        """The same for words, each of which has a piece at least. A word that the tokenizer cuts by rules that are not
        known here, such as one with a symbol of the user's, keeps its pieces."""


def starts_of(lengths: Ints) -> Ints:
    """Where each row begins if all of them stand one after the other."""
    return np.cumsum(lengths) - lengths


def gathered(values: Ids, starts: Ints, lengths: Ints) -> Ids:
    """The rows of ``values`` that begin at ``starts``, one after the other."""
    return values[np.repeat(starts - starts_of(lengths), lengths) + np.arange(int(lengths.sum()))]
