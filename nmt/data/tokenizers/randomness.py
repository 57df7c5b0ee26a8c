"""Random numbers as pure functions of their purpose, independent of order and process.

The mixing function is that of splitmix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nmt.data.vocabulary import Flags

Bits = npt.NDArray[np.uint64]

STEP = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio: successive counters lie far apart
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_64_BITS = 2**64 - 1
RESOLUTION = 2**53  # probabilities are compared as whole numbers of this many parts


def mixed(numbers: Bits) -> Bits:
    """Return 64 bits for each number; those of neighboring numbers are unrelated."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(_FIRST)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(_SECOND)
    return numbers ^ (numbers >> np.uint64(31))


def drawn(numbers: npt.NDArray[np.integer], *key: int) -> Bits:
    """Return 64 bits for each number and ``key``, such as (seed, epoch, purpose)."""
    offset = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return mixed(numbers.astype(np.uint64) * np.uint64(STEP) + offset)


def below(bits: Bits, probability: float) -> Flags:
    """Return flags that are True with this probability."""
    return (bits >> np.uint64(11)) < np.uint64(probability * RESOLUTION)


class Stream:
    """A stream of random numbers; ``nmt/native/merges.c`` draws the same."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def next(self) -> int:
        """Return a number from 0 (included) to ``RESOLUTION`` (excluded)."""
        self._state = (self._state + STEP) & _64_BITS
        z = ((self._state ^ (self._state >> 30)) * _FIRST) & _64_BITS
        z = ((z ^ (z >> 27)) * _SECOND) & _64_BITS
        return (z ^ (z >> 31)) >> 11
