"""Random numbers that depend on what they are for, not on when they are drawn.

A generator's numbers follow each other, so what a sentence gets would depend on its batch mates. Here a number is a
hash of (seed, source sentence, sample, step): the mixing function of SplitMix64, Steele et al. 2014, "Fast splittable
pseudorandom number generators". A few operations on one integer a row, on any device.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio: successive counters lie far apart
_BITS = 48  # of a number; with 53 the product with a sum of probabilities could round up to that sum


def sentence_keys(source: Tensor, source_lengths: Tensor, seed: int) -> Tensor:
    """[B] a key for each sentence of ids [B, S], from its own pieces alone: padding does not enter."""
    positions = torch.arange(1, source.size(1) + 1, device=source.device)  # [S]
    real = positions[None, :] <= source_lengths[:, None]
    mixed = _mix(_mix(source + _wrapped(_GOLDEN)) + positions * _wrapped(_GOLDEN))  # [B, S]
    return _mix((mixed * real).sum(1) + _wrapped(seed * _GOLDEN))


def sample_keys(keys: Tensor, count: int) -> Tensor:
    """[B] -> [B, count]: a key for each sample; the first ones are the same however many there are."""
    numbers = torch.arange(1, count + 1, device=keys.device)
    return _mix(keys[:, None] + _mix(numbers * _wrapped(_GOLDEN)))


def uniform(keys: Tensor, step: int) -> Tensor:
    """For each key a number of [0, 1) in float64, another one at each step."""
    mixed = _mix(keys + _wrapped(step * _GOLDEN))
    return _shifted(mixed, 64 - _BITS).double() * 2.0**-_BITS


def _mix(x: Tensor) -> Tensor:
    """A bijection of 64-bit integers in which every bit of the result depends on every bit of ``x``."""
    x = (x ^ _shifted(x, 30)) * _wrapped(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _wrapped(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, zeros coming in from the left; torch's own operator repeats the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _wrapped(number: int) -> int:
    """The signed 64-bit integer with the same bits."""
    return (number + 2**63) % 2**64 - 2**63
