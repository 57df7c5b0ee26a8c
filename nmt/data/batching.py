"""Which sentence pairs form a batch, and in which order the batches come: a pure function of its arguments.

The list is the global one: every process computes all of it and takes its share, so the position in an epoch is one
integer and another number of processes sees the same order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nmt.config.sections import BatchingConfig
from nmt.errors import DataError

Indices = npt.NDArray[np.int64]


def plan_batches(
    source_lengths: Indices,
    target_lengths: Indices | None,
    options: BatchingConfig,
    seed: int = 1,
    epoch: int = 1,
    shuffle: bool = True,
) -> list[Indices]:
    """Indices of the sentences of each batch.

    Sentences of like length stand together: they are sorted by source length, then target length, and cut so that
    sentences x longest side (padding included; without ``count_padding`` the sum of their lengths) stays within
    ``max_tokens`` on either side, and their number within ``batch_size``; None: no such limit. With ``shuffle`` equal
    lengths and the batches are in an order drawn from (seed, epoch); without, short batches come first and equal lengths
    keep the order of the corpus. Lengths count the eos. A pair that alone exceeds ``max_tokens`` is an error, or left
    out with ``skip_long``.

    ``sort_window`` shuffles first and sorts only that many sentences together: more padding, less uniform batches.
    Where length says what kind of sentence it is (a format of dates), uniform batches make learning far slower.
    """
    sides = np.stack([source_lengths] if target_lengths is None else [source_lengths, target_lengths])
    kept = _fitting(sides, options)
    if shuffle:
        kept = kept[_permutation(len(kept), seed, epoch, 0)]
    window = (options.sort_window if shuffle else None) or max(len(kept), 1)
    batches: list[Indices] = []
    for start in range(0, len(kept), window):
        part = kept[start : start + window]
        order = part[np.lexsort(sides[::-1, part])]  # stable: ties stay as they were drawn
        batches += _cut(order, sides[:, order], options)
    if shuffle:
        batches = [batches[number] for number in _permutation(len(batches), seed, epoch, 1)]
    return batches


def _cut(order: Indices, sides: Indices, options: BatchingConfig) -> list[Indices]:
    """Consecutive runs of ``order``, each as long as the limits allow; ``sides``: lengths [sides, sentences]."""
    longest, max_tokens = sides.max(0), options.token_limit
    batches: list[Indices] = []
    start = 0
    while start < len(order):
        size = min(options.batch_size or len(order), len(order) - start)
        if max_tokens is not None:
            end = start + min(size, max_tokens // int(sides[0, start]))  # no more fit: source lengths only grow
            # cost of a batch of 1, 2, ... sentences; it only grows, so the limit is found by bisection
            if options.count_padding:
                cost = np.maximum.accumulate(longest[start:end]) * np.arange(1, end - start + 1)
            else:
                cost = sides[:, start:end].cumsum(1).max(0)
            size = int(np.searchsorted(cost, max_tokens, side="right"))
        batches.append(order[start : start + size])
        start += size
    return batches


def _fitting(sides: Indices, options: BatchingConfig) -> Indices:
    """The sentences that fit into a batch; a longer one is an error unless it may be skipped."""
    longest, max_tokens = sides.max(0), options.token_limit
    too_long = np.zeros(len(longest), dtype=bool) if max_tokens is None else longest > max_tokens
    if not too_long.any() or (options.skip_long and not too_long.all()):
        return np.flatnonzero(~too_long)
    first = int(np.argmax(too_long))
    lengths = " and ".join(f"{side} {length}" for side, length in zip(("source", "target"), sides[:, first]))
    raise DataError(
        f"sentence {first} (counted from 0) has {lengths} pieces, more than a batch of max_tokens={max_tokens}; "
        f"{int(too_long.sum())} of {len(longest)} do not fit: raise max_tokens (--max-tokens) to {int(longest.max())}"
        + ("" if options.skip_long else ", or leave them out (--skip-long)")
    )


def _permutation(count: int, seed: int, epoch: int, purpose: int) -> Indices:
    """A random order made of raw bits: numpy keeps those the same in every version, its shuffles not."""
    raw = np.random.PCG64(np.random.SeedSequence((seed, epoch, purpose))).random_raw(count)
    return np.argsort(raw, kind="stable")
