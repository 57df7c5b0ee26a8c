"""Lines come back in their order, whatever order their batches are done in."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from nmt.search.requests import Request
from nmt.translation.lines import TranslatedText
from nmt.translation.source_windows import Batch, Source, SourcePart, SourceWindow, Texts, batches_of, in_order


def source(number: int, *lengths: int) -> Source:
    return Source(number, f"text {number}", tuple(np.full(length, number, dtype=np.int32) for length in lengths))


def answer(batch: Batch) -> Texts:
    return [[TranslatedText(f"{part.number}.{part.index}", [], 0.0, [], None, True)] for part in batch]


def out_of_order(batches: Iterator[Batch | None]) -> Iterator[tuple[Batch, Texts] | None]:
    """Up to five at a time, in a random order."""
    chosen, held = random.Random(4), list[Batch]()
    for batch in batches:
        if batch is not None:
            held.append(batch)
        while held and (batch is None or len(held) == 5):
            done = held.pop(chosen.randrange(len(held)))
            yield done, answer(done)
        if batch is None:
            yield None
    for done in held:
        yield done, answer(done)


@pytest.mark.parametrize("seed", range(5))
def test_lines_come_in_their_order_with_all_their_parts(seed: int) -> None:
    chosen = random.Random(seed)
    lengths = [[chosen.randint(1, 9) for _ in range(chosen.choice([0, 1, 1, 1, 3]))] for _ in range(60)]
    sources = [source(number, *of_line) for number, of_line in enumerate(lengths)]
    windows = [SourceWindow(sources[begin : begin + 7], pause=chosen.random() < 0.2) for begin in range(0, 60, 7)]
    counted: list[int] = []
    found = list(in_order(windows, lambda parts: batches_of(parts, 20, None), out_of_order, counted.append))
    assert [one.number for one, _, _ in found] == list(range(60))
    for one, texts, _ in found:
        assert [part[0].text for part in texts] == [f"{one.number}.{index}" for index in range(len(one.parts))]
    assert sum(counted) == 60


def test_batches_hold_like_lengths_within_the_budget_the_longest_first() -> None:
    parts = [
        SourcePart(0, 0, 0, "", 0, np.zeros(length, dtype=np.int32), source(0).request) for length in (3, 11, 4, 5, 3)
    ]
    batches = batches_of(parts, 12, None)
    assert [sorted(len(part.ids) for part in batch) for batch in batches] == [[11], [4, 5], [3, 3]]
    assert [len(batch) for batch in batches_of(parts, 1000, 2)] == [1, 2, 2]
    assert batches_of([], 12, None) == []


def test_what_is_to_be_scored_counts_for_a_batch() -> None:
    ids = np.zeros(3, dtype=np.int32)
    parts = [
        SourcePart(0, 0, number, "", 0, ids, Request(target=(5,) * length))
        for number, length in enumerate((2, 40, 3, 2))
    ]
    batches = batches_of(parts, 16, None)
    assert [sorted(part.number for part in batch) for batch in batches] == [[1], [0, 2, 3]]
