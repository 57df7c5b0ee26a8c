"""The best continuations of a beam. Shapes: B sentences, K beam, N = B*K hypotheses, V vocabulary, C its blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nmt.native.library import address, built

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_BLOCK = 64  # as in ranking.c


def summarise(scores: Floats, *, normalise: bool) -> tuple[Floats, Floats | None]:
    """Of scores [N, V] the highest of each block [N, C], and if asked the log-sum-exp [N]."""
    rows, vocabulary = scores.shape
    maxima = np.empty((rows, -(-vocabulary // _BLOCK)), dtype=np.float32)
    normaliser = np.empty(rows, dtype=np.float32) if normalise else None
    built().summarise(address(scores), rows, vocabulary, address(maxima), address(normaliser))
    return maxima, normaliser


def best_continuations(
    scores: Floats, maxima: Floats, totals: Floats, normaliser: Floats, count: int, banned: Sequence[int]
) -> tuple[Floats, Ints, Ints]:
    """Totals, parents and tokens [B, count], best first; ``totals`` [B, K] are those of the hypotheses."""
    (batch, beam), vocabulary = totals.shape, scores.shape[1]
    best, places = np.empty((batch, count), dtype=np.float32), np.empty((2, batch, count), dtype=np.int64)
    flags, totals = flags_of(banned), np.ascontiguousarray(totals)
    given = address(scores), address(maxima), address(totals), address(normaliser)
    found = address(best), address(places[0]), address(places[1])
    built().best_continuations(*given, batch, beam, vocabulary, count, flags, len(flags), *found)
    return best, places[0], places[1]


def flags_of(banned: Sequence[int]) -> bytes:
    """1 for each of the first ids that is banned."""
    flags = bytearray(max(banned) + 1)
    for token in banned:
        flags[token] = 1
    return bytes(flags)
