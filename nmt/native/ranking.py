"""The best continuations of a beam. Shapes: B sentences, K beam, N = B*K hypotheses, V vocabulary, C its blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.native.library import at, built, library

_BLOCK = 64  # as in ranking.c


def ranks(like: Tensor) -> bool:
    """Whether it works where ``like`` is."""
    return like.device.type == "cpu" and library() is not None


def summarise(scores: Tensor, *, normalise: bool) -> tuple[Tensor, Tensor | None]:
    """Of scores [N, V] the highest of each block [N, C], and if asked the log-sum-exp [N]."""
    found = built()
    rows, vocabulary = scores.shape
    maxima = scores.new_empty(rows, -(-vocabulary // _BLOCK))
    normaliser = scores.new_empty(rows) if normalise else None
    found.summarise(scores.data_ptr(), rows, vocabulary, maxima.data_ptr(), at(normaliser))
    return maxima, normaliser


def best_continuations(
    scores: Tensor, maxima: Tensor, totals: Tensor, normaliser: Tensor, count: int, banned: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Totals, parents and tokens [B, count], best first; ``totals`` [B, K] are those of the hypotheses."""
    found = built()
    (batch, beam), vocabulary = totals.shape, scores.size(1)
    best = totals.new_empty(batch, count)
    places = torch.empty(2, batch, count, dtype=torch.long)
    flags = bytearray(max(banned) + 1)
    for token in banned:
        flags[token] = 1
    totals, normaliser = totals.contiguous(), normaliser.contiguous()
    found.best_continuations(
        scores.data_ptr(),
        maxima.data_ptr(),
        totals.data_ptr(),
        normaliser.data_ptr(),
        batch,
        beam,
        vocabulary,
        count,
        bytes(flags),
        len(flags),
        best.data_ptr(),
        places[0].data_ptr(),
        places[1].data_ptr(),
    )
    return best, places[0], places[1]
