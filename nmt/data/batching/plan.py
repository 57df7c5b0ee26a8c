"""Which sentence pairs form a batch, and the order of the batches: a pure function of its arguments.

The plan is global: every process computes all of it and takes its share. So the position in an epoch is one integer, and
the order does not depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from nmt.config.sections import BatchingConfig
from nmt.data.batching.ordering import Order, ascending, permutation, sort_by_length
from nmt.data.corpus.lengths import BLOCK, Lengths, blocks, longest
from nmt.data.vocabulary import Flags, Ints
from nmt.errors import DataError


class BatchPlan(Sequence[Ints]):
    """The batches of an epoch as three arrays: their sentences in order, and the begin and end of each batch."""

    def __init__(self, sentences: Order, begins: Ints, ends: Ints) -> None:
        self._sentences, self._begins, self._ends = sentences, begins, ends

    def __len__(self) -> int:
        return len(self._begins)

    @overload
    def __getitem__(self, number: int) -> Ints: ...
    @overload
    def __getitem__(self, number: slice) -> list[Ints]: ...
    def __getitem__(self, number: int | slice) -> Ints | list[Ints]:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        return self._sentences[self._begins[number] : self._ends[number]].astype(np.int64)


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths | None,
    options: BatchingConfig,
    seed: int = 1,
    epoch: int = 1,
    shuffle: bool = True,
    chosen: Order | None = None,
) -> BatchPlan:
    """Plan the batches of an epoch.

    Sentences are sorted by source length, then target length, and cut into batches. On each side, sentences x longest
    (without ``count_padding`` the sum of their lengths) is within that side's limit, and the number of sentences is within
    ``batch_size``. None: no limit. Lengths include eos. A pair that alone exceeds a limit is an error, or skipped with
    ``skip_long``. With ``shuffle``, equal lengths and the batches are in an order drawn from (seed, epoch). Without it,
    short batches come first and equal lengths keep the order of the corpus.

    ``sort_window`` shuffles first and sorts only that many sentences together: more padding, less uniform batches.
    If length tells the kind of sentence (a format of dates), uniform batches make learning far slower.

    ``chosen``: the sentences, with repetitions; None: all, once. ``chosen`` is reordered in place; do not reuse it.
    """
    sides = [source_lengths] if target_lengths is None else [source_lengths, target_lengths]
    kept = _fitting(sides, options, chosen)
    order = _arranged(len(source_lengths), kept, (seed, epoch, 0) if shuffle else None)
    is_whole = kept is None
    del kept, chosen
    window = (options.sort_window if shuffle else None) or max(len(order), 1)
    ends: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(order), window):
        part = order[start : start + window]
        sort_by_length(part, *sides, complete=is_whole and len(part) == len(source_lengths))
        ends.append(start + np.fromiter(_ends(part, sides, options), dtype=np.int64))
    end = np.concatenate(ends)
    begin = np.concatenate([np.zeros(min(len(end), 1), dtype=np.int64), end[:-1]])
    if not shuffle:
        return BatchPlan(order, begin, end)
    shuffled = permutation(len(end), seed, epoch, 1)
    return BatchPlan(order, begin[shuffled], end[shuffled])


def _arranged(count: int, kept: Order | None, key: tuple[int, ...] | None) -> Order:
    """Return ``kept`` (None: all ``count`` sentences), shuffled by ``key`` unless that is None."""
    if key is not None:
        order = permutation(count if kept is None else len(kept), *key)
        if kept is not None:
            for block in blocks(len(order)):
                order[block] = kept[order[block]]
        return order
    return ascending(slice(0, count), count) if kept is None else kept


def _ends(order: Order, sides: Sequence[Lengths], options: BatchingConfig) -> Iterator[int]:
    """Yield the end of each batch of consecutive sentences of ``order``: as late as the limits allow."""
    limits = options.limits[: len(sides)]
    most = min((limit for limit in (*limits, options.batch_size) if limit is not None), default=len(order))
    start = 0
    while start < len(order):
        seen = order[start : start + max(BLOCK, most)]
        lengths = np.stack([side[seen] for side in sides])  # [sides, sentences]
        is_rest, done = start + len(seen) == len(order), 0
        # Unless this is the rest, a batch may continue beyond `seen`.
        while done < len(seen) and (is_rest or done + most <= len(seen)):
            done += _size(lengths[:, done : done + most], limits, options.count_padding)
            yield start + done
        start += done


def _size(lengths: Ints, limits: Sequence[int | None], count_padding: bool) -> int:
    """Return how many of the first sentences, of lengths [sides, sentences], fit into one batch."""
    size = int(lengths.shape[1])
    if limits[0] is not None:
        size = min(size, limits[0] // int(lengths[0, 0]))  # no more fit: source lengths only grow
    for side, limit in zip(lengths, limits):
        if limit is not None:
            # the cost of a batch of 1, 2, ... sentences; it only grows, so the limit is found by bisection
            if count_padding:
                cost = np.maximum.accumulate(side[:size]) * np.arange(1, size + 1)
            else:
                cost = side[:size].cumsum()
            size = int(np.searchsorted(cost, limit, side="right"))
    return size


def _fitting(sides: Sequence[Lengths], options: BatchingConfig, chosen: Order | None) -> Order | None:
    """Return the sentences that fit into a batch (None: all); a longer one is an error without ``skip_long``."""
    limits = options.limits[: len(sides)]
    left_out = sum(int(too_long.sum()) for _, too_long in _against_limits(sides, limits, chosen))
    count = len(sides[0]) if chosen is None else len(chosen)
    if not left_out:
        return chosen
    if options.skip_long and left_out < count:
        return np.concatenate([numbers[~too_long] for numbers, too_long in _against_limits(sides, limits, chosen)])
    long = (numbers[too_long] for numbers, too_long in _against_limits(sides, limits, chosen))
    first = int(next(sentences[0] for sentences in long if len(sentences)))
    lengths = " and ".join(f"{int(side[first])} {name}" for name, side in zip(("source", "target"), sides))
    needed = options.exceeded([longest(side) for side in sides])
    raise DataError(
        f"sentence {first} (counted from 0) has {lengths} tokens, over the limit of a micro-batch "
        f"({' and '.join(f'{option}={limit}' for option, (limit, _) in needed.items())}); {left_out} of {count} do not fit: "
        + " and ".join(
            f"raise {option} (--{option.replace('_', '-')}) to {least}" for option, (_, least) in needed.items()
        )
        + ("" if options.skip_long else ", or drop them (--skip-long)")
    )


def _against_limits(
    sides: Sequence[Lengths], limits: Sequence[int | None], chosen: Order | None
) -> Iterator[tuple[Order, Flags]]:
    """Yield the numbers of sentences in blocks, and which of them exceed a side's limit."""
    if all(limit is None for limit in limits):
        return
    for block in blocks(len(sides[0]) if chosen is None else len(chosen)):
        numbers = ascending(block, len(sides[0])) if chosen is None else chosen[block]
        side_lengths = [side[block if chosen is None else numbers] for side in sides]
        yield numbers, np.any([side > limit for side, limit in zip(side_lengths, limits) if limit is not None], axis=0)


def split_batch(batch: Ints, sides: Sequence[Lengths], max_padding: float) -> list[Ints]:
    """Split a batch until at most the share ``max_padding`` of all positions, of both sides, is padding.

    Each cut is the one that saves most positions.
    """
    lengths = np.stack([side[batch] for side in sides])  # [sides, sentences]
    positions, pieces = len(batch) * int(lengths.max(1).sum()), int(lengths.sum())
    cuts = [_best_cut(lengths, np.arange(len(batch)))]
    while positions - pieces > max_padding * positions:
        best = max(range(len(cuts)), key=lambda number: cuts[number].saves)
        positions -= cuts[best].saves
        cuts[best : best + 1] = [_best_cut(lengths, half) for half in cuts[best].halves]
    return [batch[cut.whole] for cut in cuts]


@dataclass(frozen=True)
class _Cut:
    """Sentences of a batch, and the cut in two that saves most positions."""

    whole: Ints
    halves: tuple[Ints, Ints]
    saves: int


def _best_cut(lengths: Ints, whole: Ints) -> _Cut:
    best = _Cut(whole, (whole, whole[:0]), 0)
    positions = len(whole) * int(lengths[:, whole].max(1).sum())
    for side in lengths:
        order = whole[np.argsort(side[whole], kind="stable")]
        ordered = lengths[:, order]
        ahead = np.maximum.accumulate(ordered, axis=1).sum(0)  # positions of a sentence among the first 1, 2, ...
        behind = np.maximum.accumulate(ordered[:, ::-1], axis=1).sum(0)[::-1]  # among the last n, n - 1, ...
        cost = ahead[:-1] * np.arange(1, len(order)) + behind[1:] * np.arange(len(order) - 1, 0, -1)
        if len(cost) and positions - int(cost.min()) > best.saves:
            at = int(cost.argmin()) + 1
            best = _Cut(whole, (np.sort(order[:at]), np.sort(order[at:])), positions - int(cost.min()))
    return best
