"""Sampling from the unigram model: all segmentations of a word, by their probabilities to a power (Kudo 2018,
arXiv:1804.10959)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from nmt.data.tokenizers.randomness import RESOLUTION, Bits, Stream
from nmt.data.tokenizers.sampling import Sampler, starts_of
from nmt.data.vocabulary import Flags, Ids, Ints

MOST_KEPT = 2**20  # arcs of cached words, some 120 MB
TOLERANCE = 1e-3  # of a score: sentencepiece adds in single precision

Arc = tuple[float, int, int]  # cumulative share in the list times RESOLUTION, begin, id
Lattice = list[list[Arc]]  # the tokens that end at each position of a word


class UnigramSampling(Sampler):
    """``alpha``: the power; 1 samples from the model, smaller values approach uniform sampling."""

    def __init__(self, begins_word: Flags, pieces: Sequence[str], scores: Mapping[str, float], alpha: float) -> None:
        """``pieces``: tokens by id. ``scores``: log-probabilities of the tokens that may be drawn."""
        super().__init__(begins_word)
        self._pieces = pieces
        self._known = {piece: (number, scores[piece]) for number, piece in enumerate(pieces) if piece in scores}
        self._longest = max(map(len, self._known), default=0)
        self._alpha = alpha
        self._lattices: dict[tuple[int, ...], Lattice | None] = {}  # None: the word keeps its tokens
        self._kept = 0

    def draw(self, ids: Ids, lengths: Ints, seeds: Bits) -> tuple[Ids, Ints]:
        if self._kept > MOST_KEPT:
            self._lattices, self._kept = {}, 0
        drawn: list[int] = []
        counts: list[int] = []
        numbers = ids.tolist()
        for start, length, seed in zip(starts_of(lengths).tolist(), lengths.tolist(), seeds.tolist()):
            word = tuple(numbers[start : start + length])
            lattice = self._lattices[word] if word in self._lattices else self._lattice(word)
            pieces = word if lattice is None else self._path(lattice, Stream(seed))
            drawn += pieces
            counts.append(len(pieces))
        return np.array(drawn, dtype=np.int64), np.array(counts, dtype=np.int64)

    def _path(self, lattice: Lattice, stream: Stream) -> Sequence[int]:
        """Draw a segmentation from the end of the word to its beginning."""
        path: list[int] = []
        end = len(lattice) - 1
        while end:
            arcs = lattice[end]
            if len(arcs) == 1:
                _, end, piece = arcs[0]
            else:
                share = stream.next()
                _, end, piece = next(arc for arc in arcs if share < arc[0])
            path.append(piece)
        path.reverse()
        return path

    def _lattice(self, word: tuple[int, ...]) -> Lattice | None:
        """Make the lattice of a word; None if the model cuts it by other rules."""
        text = "".join(self._pieces[number] for number in word)
        lattice: Lattice = [[]]
        # Of the text up to each position: the best score, and the logarithm of the sum over all segmentations.
        best, mass = [0.0], [0.0]
        for end in range(1, len(text) + 1):
            candidates = [
                (begin, *known)
                for begin in range(max(0, end - self._longest), end)
                if (known := self._known.get(text[begin:end])) is not None and mass[begin] > -math.inf
            ]
            weights = [mass[begin] + self._alpha * score for begin, _, score in candidates]
            highest = max(weights, default=-math.inf)
            sums = [*itertools.accumulate(math.exp(weight - highest) for weight in weights)]
            best.append(max((best[begin] + score for begin, _, score in candidates), default=-math.inf))
            mass.append(highest + math.log(sums[-1]) if candidates else -math.inf)
            lattice.append(
                [(RESOLUTION * sum_ / sums[-1], begin, number) for sum_, (begin, number, _) in zip(sums, candidates)]
            )
        usual = math.fsum(self._known.get(self._pieces[number], (0, -math.inf))[1] for number in word)
        sound = usual > -math.inf and usual >= best[-1] - TOLERANCE
        self._lattices[word] = lattice if sound else None
        self._kept += sum(map(len, lattice))
        return self._lattices[word]
