"""Which sentence pairs form a batch, and in which order the batches come: a pure function of its arguments.

The plan is the global one: every process computes all of it and takes its share, so the position in an epoch is one
integer and another number of processes sees the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from nmt.config.sections import BatchingConfig
from nmt.data.lengths import BLOCK, Lengths, blocks, longest
from nmt.data.ordering import Order, ascending, permutation, sort_by_length
from nmt.data.vocabulary import Flags, Ints
from nmt.errors import DataError

Indices = npt.NDArray[np.int64]


class BatchPlan(Sequence[Indices]):
    """The batches of an epoch. However many there are, they are three arrays: the sentences, those of one batch after the
    other, and where each batch begins and ends among them."""

    def __init__(self, sentences: Order, begins: Ints, ends: Ints) -> None:
        self._sentences, self._begins, self._ends = sentences, begins, ends

    def __len__(self) -> int:
        return len(self._begins)

    @overload
    def __getitem__(self, number: int) -> Indices: ...
    @overload
    def __getitem__(self, number: slice) -> list[Indices]: ...
    def __getitem__(self, number: int | slice) -> Indices | list[Indices]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
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
    """Indices of the sentences of each batch.

    Sentences of like length stand together: they are sorted by source length, then target length, and cut so that on
    each side sentences x longest (padding included; without ``count_padding`` the sum of their lengths) stays within that
    side's limit, and their number within ``batch_size``; None: no such limit. With ``shuffle`` equal lengths and the
    batches are in an order drawn from (seed, epoch); without, short batches come first and equal lengths keep the order of
    the corpus. Lengths count the eos. A pair that alone exceeds a limit is an error, or left out with ``skip_long``.

    ``sort_window`` shuffles first and sorts only that many sentences together: more padding, less uniform batches.
    Where length says what kind of sentence it is (a format of dates), uniform batches make learning far slower.

    ``chosen``: the sentences to make batches of, some perhaps several times; None: all of them, once. The array is used up.
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
    """Sentences in the order of ``kept`` (None: all ``count``, as they come), or in one that ``key`` draws."""
    if key is not None:
        order = permutation(count if kept is None else len(kept), *key)
        if kept is not None:
            for block in blocks(len(order)):
                order[block] = kept[order[block]]
        return order
    if kept is not None:
        return kept
    return ascending(slice(0, count), count)


def _ends(order: Order, sides: Sequence[Lengths], options: BatchingConfig) -> Iterator[int]:
    """Where each batch of consecutive sentences of ``order`` ends: as late as the limits allow."""
    limits = options.limits[: len(sides)]
    most = min((limit for limit in (*limits, options.batch_size) if limit is not None), default=len(order))
    start = 0
    while start < len(order):
        seen = order[start : start + max(BLOCK, most)]
        lengths = np.stack([side[seen] for side in sides])  # [sides, sentences]
        is_rest, done = start + len(seen) == len(order), 0
        while done < len(seen) and (is_rest or done + most <= len(seen)):  # else a batch may go on beyond what is seen
            done += _size(lengths[:, done : done + most], limits, options.count_padding)
            yield start + done
        start += done


def _size(lengths: Indices, limits: Sequence[int | None], count_padding: bool) -> int:
    """How many sentences of these lengths [sides, sentences] go into one batch, from the first on."""
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
    """The sentences that fit into a batch (None: all); a longer one is an error unless it may be skipped."""
    limits = options.limits[: len(sides)]
    left_out = sum(int(too_long.sum()) for _, too_long in _against_limits(sides, limits, chosen))
    count = len(sides[0]) if chosen is None else len(chosen)
    if not left_out:
        return chosen
    if options.skip_long and left_out < count:
        return np.concatenate([numbers[~too_long] for numbers, too_long in _against_limits(sides, limits, chosen)])
    long = (numbers[too_long] for numbers, too_long in _against_limits(sides, limits, chosen))
    first = int(next(found[0] for found in long if len(found)))
    lengths = " and ".join(f"{name} {int(side[first])}" for name, side in zip(("source", "target"), sides))
    needed = options.exceeded([longest(side) for side in sides])
    raise DataError(
        f"sentence {first} (counted from 0) has {lengths} pieces, more than a batch of "
        f"{' and '.join(f'{option}={limit}' for option, (limit, _) in needed.items())}; {left_out} of {count} do not fit: "
        + " and ".join(
            f"raise {option} (--{option.replace('_', '-')}) to {least}" for option, (_, least) in needed.items()
        )
        + ("" if options.skip_long else ", or leave them out (--skip-long)")
    )


def _against_limits(
    sides: Sequence[Lengths], limits: Sequence[int | None], chosen: Order | None
) -> Iterator[tuple[Order, Flags]]:
    """Block by block the numbers of sentences, and which of them are longer than a side's limit."""
    if all(limit is None for limit in limits):
        return
    for block in blocks(len(sides[0]) if chosen is None else len(chosen)):
        numbers = ascending(block, len(sides[0])) if chosen is None else chosen[block]
        found = [side[block if chosen is None else numbers] for side in sides]
        yield numbers, np.any([side > limit for side, limit in zip(found, limits) if limit is not None], axis=0)


def parts_of(batch: Indices, sides: Sequence[Lengths], max_padding: float) -> list[Indices]:
    """A batch cut into parts, few and of like lengths: of all their positions, on both sides together, at most the share
    ``max_padding`` is padding. Each cut is the one that saves most."""
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
    """Sentences of a batch, and how to cut them in two so that most positions are saved."""

    whole: Indices
    halves: tuple[Indices, Indices]
    saves: int


def _best_cut(lengths: Indices, whole: Indices) -> _Cut:
    best = _Cut(whole, (whole, whole[:0]), 0)
    positions = len(whole) * int(lengths[:, whole].max(1).sum())
    for side in lengths:
        order = whole[np.argsort(side[whole], kind="stable")]
        there = lengths[:, order]
        ahead = np.maximum.accumulate(there, axis=1).sum(0)  # what a sentence takes among the first 1, 2, ...
        behind = np.maximum.accumulate(there[:, ::-1], axis=1).sum(0)[
            ::-1
        ]  # and among those from the first, second ... on
        cost = ahead[:-1] * np.arange(1, len(order)) + behind[1:] * np.arange(len(order) - 1, 0, -1)
        if len(cost) and positions - int(cost.min()) > best.saves:
            at = int(cost.argmin()) + 1
            best = _Cut(whole, (np.sort(order[:at]), np.sort(order[at:])), positions - int(cost.min()))
    return best
