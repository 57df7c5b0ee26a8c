"""Mixtures of corpora: the sentences of an epoch, a pure function of the seed and the epoch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.data.batching.ordering import Order, empty_order, permutation

_PURPOSE = 2  # in the key of a random order; the orders of batches have others


@dataclass(frozen=True)
class Mixture:
    """Concatenated corpora, and the number of sentence pairs of each in an epoch.

    Each corpus is read in passes; a pass has every sentence once, in a random order. An epoch continues where the previous
    one stopped, so no sentence is repeated before all others of its corpus were read.
    """

    sizes: tuple[int, ...]  # sentences of each corpus
    counts: tuple[int, ...]  # of each corpus in an epoch

    @classmethod
    def of_weights(cls, sizes: Sequence[int], weights: Sequence[float]) -> Mixture:
        """Mix by weights. An epoch is as large as all corpora of nonzero weight, and has a sentence of each at least."""
        total = sum(size for size, weight in zip(sizes, weights) if weight)
        counts = (max(1, round(total * weight / sum(weights))) if weight else 0 for weight in weights)
        return cls(tuple(sizes), tuple(counts))

    @classmethod
    def of_temperature(cls, sizes: Sequence[int], temperature: float) -> Mixture:
        """Mix in proportion to size to the power 1/temperature (Arivazhagan et al. 2019, arXiv:1907.05019)."""
        largest = max(*sizes, 1)
        return cls.of_weights(sizes, [(size / largest) ** (1 / temperature) for size in sizes])

    def __len__(self) -> int:
        return sum(self.counts)

    def draw(self, seed: int, stage: int, epoch: int) -> Order:
        """Return the sentences of an epoch by their numbers in the concatenation, corpus by corpus.

        ``epoch`` counts from 1 in its stage of training.
        """
        order = empty_order(len(self), sum(self.sizes))
        filled, firsts = 0, [0, *itertools.accumulate(self.sizes)]
        for corpus, (size, count, first) in enumerate(zip(self.sizes, self.counts, firsts)):
            begin = (epoch - 1) * count  # among all sentences drawn from this corpus in the stage
            end = begin + count
            while begin < end:
                number, at = divmod(begin, size)
                sentences = permutation(size, seed, stage, corpus, number, _PURPOSE)[at : at + end - begin]
                order[filled : filled + len(sentences)] = sentences
                order[filled : filled + len(sentences)] += first
                begin, filled = begin + len(sentences), filled + len(sentences)
        return order


@dataclass(frozen=True)
class Stage:
    """A stage of training with its mixture; None: every sentence once an epoch.

    All stages but the first begin at an update or at an epoch.
    """

    mixture: Mixture | None = None
    from_update: int | None = None
    from_epoch: int | None = None
    name: str = ""  # for messages

    def is_due(self, update: int, epoch: int | None) -> bool:
        """Return whether it begins before this update. ``epoch``: the epoch that begins here; None: an epoch continues."""
        by_epoch = epoch is not None and self.from_epoch is not None and epoch >= self.from_epoch
        return by_epoch or (self.from_update is not None and update >= self.from_update)
