"""BPE-dropout: merges are dropped at random (Provilkov, Emelianenko and Voita 2020, arXiv:1910.13267).

The loop over the merges exists in C for speed (``nmt/native/merges.c``), and here for installations without it. Both have
the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nmt.data.tokenizers.randomness import RESOLUTION, STEP, Bits, Stream
from nmt.data.tokenizers.sampling import Sampler, gathered, starts_of
from nmt.data.vocabulary import UNK, Flags, Ids, Ints
from nmt.native.library import address, library

Pair = tuple[int, int]


class Merges:
    """The merges of byte-pair encoding. Parts of words have separate numbers, since some are not in the vocabulary."""

    def __init__(self, ranked: Mapping[Pair, tuple[float, int]], ids: Sequence[int]) -> None:
        """``ranked``: for two parts the rank of their merge, smallest first, and the merged part. ``ids``: the token of
        each part, or unknown."""
        ranks = {rank: number for number, rank in enumerate(sorted({rank for rank, _ in ranked.values()}))}
        self.ids = np.array(ids, dtype=np.int64)
        self.joined = {pair: (ranks[rank], whole) for pair, (rank, whole) in ranked.items()}
        self._bits = max(1, (2 * len(ranked)).bit_length())
        self._keys = np.full(2**self._bits, -1, dtype=np.int64)
        self._values = np.zeros((2**self._bits, 2), dtype=np.int32)
        for (left, right), value in self.joined.items():
            key = left << 32 | right
            slot = (key * STEP & 2**64 - 1) >> 64 - self._bits
            while self._keys[slot] >= 0:
                slot = (slot + 1) % len(self._keys)
            self._keys[slot], self._values[slot] = key, value

    def drop(self, parts: Ids, lengths: Ints, seeds: Bits, dropout: float) -> tuple[Ids, Ints]:
        """Merge the initial ``parts`` of concatenated words; return the new parts and their counts."""
        limit, ends = int(dropout * RESOLUTION), np.cumsum(lengths)
        native = library()
        if native is None:
            words = np.split(parts, ends[:-1])
            made = [self.drop_in_word(word.tolist(), Stream(int(seed)), limit) for word, seed in zip(words, seeds)]
            return np.array([part for word in made for part in word], dtype=np.int64), np.array([*map(len, made)])
        work, counts = np.ascontiguousarray(parts, dtype=np.int32), np.empty(len(lengths), dtype=np.int64)
        room = np.empty((2, int(lengths.max(initial=1))), dtype=np.int32)
        arrays: tuple[Any, ...] = (work, ends, seeds, self._keys, self._values, room, counts)
        native.drop_merges(*map(address, arrays), len(lengths), room.shape[1], limit, self._bits)
        return gathered(work, ends - lengths, counts), counts

    def drop_in_word(self, parts: list[int], stream: Stream, limit: int) -> list[int]:
        """Merge the parts of a word (Algorithm 1 of the paper).

        Each step drops every possible merge with a probability and applies the first of the others, until none is left.
        """
        while True:
            merges = [(*self.joined[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in self.joined]
            for _, whole, place in sorted(merges, key=lambda merge: (merge[0], merge[2])):
                if stream.next() >= limit:
                    parts = [*parts[:place], whole, *parts[place + 2 :]]
                    break
            else:
                return parts


class BpeDropout(Sampler):
    """``dropout``: the probability that a merge is dropped at a step."""

    def __init__(
        self,
        begins_word: Flags,
        characters: Sequence[Sequence[int]],
        merges: Merges,
        dropout: float,
        ends_word: Flags | None = None,
    ) -> None:
        """``characters``: by id, the initial parts of a token; empty if it is not made by merges."""
        super().__init__(begins_word, ends_word)
        self._merges = merges
        self._dropout = dropout
        sound = [
            len(parts) > 0 and merges.ids[merges.drop_in_word([*parts], Stream(0), 0)].tolist() == [number]
            for number, parts in enumerate(characters)
        ]
        self._sound = np.array(sound)
        self._lengths = np.array([len(parts) for parts in characters], dtype=np.int64)
        self._starts = starts_of(self._lengths)
        self._characters = np.array([part for parts in characters for part in parts], dtype=np.int32)

    def draw(self, ids: Ids, lengths: Ints, seeds: Bits) -> tuple[Ids, Ints]:
        starts = starts_of(lengths)
        sound = np.logical_and.reduceat(self._sound[ids], starts)
        counts = self._lengths[ids]
        characters = gathered(self._characters, self._starts[ids], counts)
        sizes = np.add.reduceat(counts, starts)
        if not sound.all():
            characters, sizes = characters[np.repeat(sound, sizes)], sizes[sound]
        parts, made = self._merges.drop(characters, sizes, seeds[sound], self._dropout)
        drawn = self._merges.ids[parts]
        # Unchanged words follow the drawn ones; each word is gathered from one of the two.
        begins, sizes = starts + len(drawn), lengths.copy()
        begins[sound], sizes[sound] = starts_of(made), made
        unknown = np.zeros(len(lengths), dtype=bool)
        unknown[sound] = np.logical_or.reduceat(drawn == UNK, starts_of(made)) if len(made) else False
        begins, sizes = np.where(unknown, starts + len(drawn), begins), np.where(unknown, lengths, sizes)
        return gathered(np.concatenate([drawn, ids]), begins, sizes), sizes
