"""Mixing corpora: which of their sentences an epoch has, a pure function of the seed and of the number of the epoch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.data.ordering import Order, empty_order, permutation

_PURPOSE = 2  # part of the key of a random order; the orders of batching have others


@dataclass(frozen=True)
class Mixture:
    """Several corpora, one after the other in what is trained on, and how many sentence pairs of each an epoch has.

    Each corpus is gone through in passes: in a pass every sentence comes once, in an order of that pass. An epoch takes
    its sentences where the one before stopped, so none comes again before all others of its corpus have come.
    """

    sizes: tuple[int, ...]  # sentences of each corpus
    counts: tuple[int, ...]  # those of an epoch

    @classmethod
    def of_weights(cls, sizes: Sequence[int], weights: Sequence[float]) -> Mixture:
        """An epoch has as many sentences as the corpora with a weight together, to within rounding, and at least one of
        each of these."""
        total = sum(size for size, weight in zip(sizes, weights) if weight)
        counts = (max(1, round(total * weight / sum(weights))) if weight else 0 for weight in weights)
        return cls(tuple(sizes), tuple(counts))

    @classmethod
    def of_temperature(cls, sizes: Sequence[int], temperature: float) -> Mixture:
        """Shares by size to the power of 1/temperature (Arivazhagan et al. 2019, arXiv:1907.05019)."""
        largest = max(*sizes, 1)
        return cls.of_weights(sizes, [(size / largest) ** (1 / temperature) for size in sizes])

    def __len__(self) -> int:
        return sum(self.counts)

    def draw(self, seed: int, stage: int, epoch: int) -> Order:
        """The sentences of an epoch, counted from 1 in its stage of training, those of one corpus after the other. Their
        numbers are those of all corpora."""
        order = empty_order(len(self), sum(self.sizes))
        filled = 0
        for corpus, (size, count, first) in enumerate(zip(self.sizes, self.counts, self._firsts())):
            begin = (epoch - 1) * count  # of all that is drawn of this corpus in the stage
            end = begin + count
            while begin < end:
                number, at = divmod(begin, size)
                taken = permutation(size, seed, stage, corpus, number, _PURPOSE)[at : at + end - begin]
                order[filled : filled + len(taken)] = taken
                order[filled : filled + len(taken)] += first
                begin, filled = begin + len(taken), filled + len(taken)
        return order

    def _firsts(self) -> list[int]:
        return [0, *itertools.accumulate(self.sizes)]


@dataclass(frozen=True)
class Stage:
    """A part of training with a mixture of its own (None: every sentence once an epoch). All but the first begin with an
    update or an epoch of this number, whichever is given."""

    mixture: Mixture | None = None
    from_update: int | None = None
    from_epoch: int | None = None
    name: str = ""  # for messages

    def is_due(self, update: int, epoch: int | None) -> bool:
        """Before this update. ``epoch``: the one that begins with it; None: it goes on with one that has begun."""
        by_epoch = epoch is not None and self.from_epoch is not None and epoch >= self.from_epoch
        return by_epoch or (self.from_update is not None and update >= self.from_update)
