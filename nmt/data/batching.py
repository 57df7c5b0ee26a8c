"""Which sentence pairs form a batch, and in which order the batches come: a pure function of its arguments.

The list is the global one: every process computes all of it and takes its share, so the position in an epoch is one
integer and another number of processes sees the same order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nmt.errors import DataError

Indices = npt.NDArray[np.int64]


def plan_batches(
    source_lengths: Indices,
    target_lengths: Indices | None,
    *,
    max_tokens: int | None,
    batch_size: int | None,
    seed: int = 1,
    epoch: int = 1,
    shuffle: bool = True,
    sort_window: int | None = None,
    skip_long: bool = False,
    count_padding: bool = True,
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
    longest = source_lengths if target_lengths is None else np.maximum(source_lengths, target_lengths)
    kept = _fitting(source_lengths, target_lengths, longest, max_tokens, skip_long)
    if shuffle:
        kept = kept[_permutation(len(kept), seed, epoch, 0)]
    then_by = source_lengths if target_lengths is None else target_lengths
    batches: list[Indices] = []
    for window in _windows(kept, sort_window if shuffle else None):
        order = window[np.lexsort((then_by[window], source_lengths[window]))]  # stable: ties stay as they were drawn
        if count_padding:
            batches += _cut(order, longest[order], max_tokens, batch_size)
        else:
            batches += _cut_sums(order, np.stack([source_lengths[order], then_by[order]]), max_tokens, batch_size)
    if shuffle:
        batches = [batches[number] for number in _permutation(len(batches), seed, epoch, 1)]
    return batches


def _windows(indices: Indices, size: int | None) -> list[Indices]:
    return [indices] if size is None else [indices[start : start + size] for start in range(0, len(indices), size)]


def _cut(order: Indices, longest: Indices, max_tokens: int | None, batch_size: int | None) -> list[Indices]:
    """Consecutive runs of ``order``, each as long as the limits allow."""
    batches: list[Indices] = []
    start = 0
    while start < len(order):
        window = len(order) - start
        if batch_size is not None:
            window = min(window, batch_size)
        if max_tokens is not None:
            window = min(window, max_tokens // int(longest[start]))
            # cost of a batch of 1, 2, ... sentences; it only grows, so the limit is found by bisection
            cost = np.maximum.accumulate(longest[start : start + window]) * np.arange(1, window + 1)
            window = int(np.searchsorted(cost, max_tokens, side="right"))
        batches.append(order[start : start + window])
        start += window
    return batches


def _cut_sums(order: Indices, lengths: Indices, max_tokens: int | None, batch_size: int | None) -> list[Indices]:
    """The same where the sums of ``lengths`` [sides, sentences] are limited."""
    sums = lengths.cumsum(1)
    batches: list[Indices] = []
    start = 0
    while start < len(order):
        end = len(order) if batch_size is None else min(start + batch_size, len(order))
        if max_tokens is not None:
            before = sums[:, start] - lengths[:, start]
            end = min(end, *(int(np.searchsorted(*side, side="right")) for side in zip(sums, before + max_tokens)))
        batches.append(order[start:end])
        start = end
    return batches


def _fitting(
    source_lengths: Indices, target_lengths: Indices | None, longest: Indices, max_tokens: int | None, skip_long: bool
) -> Indices:
    """The sentences that fit into a batch; a longer one is an error unless it may be skipped."""
    everything = np.arange(len(longest), dtype=np.int64)
    if max_tokens is None or not len(longest) or int(longest.max()) <= max_tokens:
        return everything
    too_long = longest > max_tokens
    if skip_long and not too_long.all():
        return everything[~too_long]
    first = int(np.argmax(too_long))
    target = "" if target_lengths is None else f" and target {target_lengths[first]}"
    advice = f"raise max_tokens (--max-tokens) to {int(longest.max())}"
    raise DataError(
        f"sentence {first} (counted from 0) has source {source_lengths[first]}{target} pieces, more than a batch of "
        f"max_tokens={max_tokens}; {int(too_long.sum())} of {len(longest)} do not fit: {advice}"
        + ("" if skip_long else ", or leave them out (--skip-long)")
    )


def _permutation(count: int, seed: int, epoch: int, purpose: int) -> Indices:
    """A random order made of raw bits: numpy keeps those the same in every version, its shuffles not."""
    raw = np.random.PCG64(np.random.SeedSequence((seed, epoch, purpose))).random_raw(count)
    return np.argsort(raw, kind="stable")
