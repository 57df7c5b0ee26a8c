"""Words with the pieces that they were cut into: most words of a text stood in it before.

Byte-pair encoding joins nothing across words if no piece does, so that a line is cut as its words are. sentencepiece takes
11 microseconds for a line of Multi30k, whichever of its interfaces is asked; to rewrite its characters alone takes 1.4.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from nmt.data.tokenizers.sampling import gathered
from nmt.data.vocabulary import EOS, Ints

END = "\n"  # stands among words where a line ends
_MOST = 2**16  # words that are kept: some ten megabytes

Cut = Callable[[Sequence[str]], Sequence[Ints | None]]


class KnownWords:
    """``cut``: the ids of words; None for a word of which they are not known without its line."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._forget()

    def _forget(self) -> None:
        self._numbers = _Numbers({END: 0})
        self._lengths, self._ids = np.array([1]), np.array([EOS])
        self._starts = np.array([0])

    def __call__(self, words: Sequence[str]) -> Ints | None:
        """The ids of all words, one after the other; None if there is one of which they are not known."""
        if len(self._numbers) > _MOST:
            self._forget()
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        new = [*itertools.islice(reversed(self._numbers), len(self._numbers) - len(self._lengths))]
        if new:
            self._learn(new[::-1])
        lengths = self._lengths[numbers]
        if lengths.min(initial=0) < 0:
            return None
        return gathered(self._ids, self._starts[numbers], lengths).astype(np.int64, copy=False)

    def _learn(self, words: Sequence[str]) -> None:
        cut = self._cut(words)
        known = [ids for ids in cut if ids is not None]
        lengths = np.array([-1 if ids is None else len(ids) for ids in cut])
        ends = len(self._ids) + np.cumsum(lengths.clip(min=0))
        self._starts = np.concatenate([self._starts, ends - lengths.clip(min=0)])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._ids = np.concatenate([self._ids, *known])


class _Numbers(dict[str, int]):
    """Gives each word that it has not yet the next number."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number
