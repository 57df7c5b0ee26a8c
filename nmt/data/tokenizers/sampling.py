"""Sampling of segmentations: each word is cut by its own random numbers.

No text is needed: the tokens of a sentence spell it. sentencepiece 0.2.3 can sample too, but its draws differ between
processes for any seed, so a resumed run would see other text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from nmt.data.tokenizers.randomness import STEP, Bits, mixed
from nmt.data.vocabulary import Flags, Ids, Ints


class Sampler(ABC):
    """Draws new segmentations of tokenized sentences."""

    def __init__(self, begins_word: Flags, ends_word: Flags | None = None) -> None:
        """Flags by id: whether the token begins a word, and whether it ends one (None: not marked)."""
        self._begins_word = begins_word
        self._ends_word = ends_word

    def __call__(self, ids: Ids, lengths: Ints, seeds: Bits) -> tuple[Ids, Ints]:
        """Return new ids of concatenated sentences, and their lengths, both without bos and eos.

        The result for a sentence depends only on its ``ids`` and its seed.
        """
        starts = starts_of(lengths)
        begins = self._begins_word[ids]
        begins[starts[lengths > 0]] = True
        if self._ends_word is not None:
            begins[1:] |= self._ends_word[ids[:-1]]
        words = np.flatnonzero(begins)
        if not len(words):
            return ids, lengths
        sentences = np.repeat(np.arange(len(lengths)), lengths)[words]
        place = np.arange(len(words)) - np.searchsorted(words, starts)[sentences]  # of each word in its sentence
        own = mixed(seeds[sentences] + (place + 1).astype(np.uint64) * np.uint64(STEP))
        drawn, counts = self.draw(ids, np.diff(np.append(words, len(ids))), own)
        return drawn, np.bincount(sentences, weights=counts, minlength=len(lengths)).astype(np.int64)

    @abstractmethod
    def draw(self, ids: Ids, lengths: Ints, seeds: Bits) -> tuple[Ids, Ints]:
        """Return new ids of concatenated words of at least one token, and their lengths.

        A word keeps its tokens if they do not follow the sampled rules, as with a user-defined symbol.
        """


def starts_of(lengths: Ints) -> Ints:
    """Return the start of each of the concatenated rows."""
    return np.cumsum(lengths) - lengths


def gathered(values: Ids, starts: Ints, lengths: Ints) -> Ids:
    """Concatenate the rows of ``values`` that begin at ``starts``."""
    return values[np.repeat(starts - starts_of(lengths), lengths) + np.arange(int(lengths.sum()))]
