"""Few configurations that hold many combinations of options: every pair of values stands together in one of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any

Pair = frozenset[tuple[str, Any]]


def pairs_of(options: Mapping[str, Any]) -> set[Pair]:
    return {frozenset(pair) for pair in combinations(options.items(), 2)}


def covering(
    wanted: Iterable[Mapping[str, Any]],
    values: Mapping[str, tuple[Any, ...]],
    complete: Callable[[Mapping[str, Any]], dict[str, Any]],
    allowed: Callable[[Mapping[str, Any]], bool],
) -> list[dict[str, Any]]:
    """Allowed configurations in which all ``wanted`` pairs of options stand, as few as a greedy choice finds.

    ``complete``: the whole configuration of a pair, which is allowed. From there each option in turn takes that of its
    ``values`` which brings in most pairs that are still missing; after Cohen et al., "The AETG System" (1997).
    """
    missing = {frozenset(pair.items()): complete(pair) for pair in wanted}
    order, found = random.Random(1), []
    while missing:
        pair, row = next(iter(missing.items()))
        fixed = {name for name, _ in pair}
        for name in order.sample(sorted(values), len(values)):
            if name in fixed:
                continue
            others = [item for item in row.items() if item[0] != name]
            choices = [row[name], *values[name]]
            gains = [sum(frozenset(((name, value), other)) in missing for other in others) for value in choices]
            for index in sorted(range(len(choices)), key=lambda index: -gains[index]):
                if choices[index] == row[name] or allowed({**row, name: choices[index]}):
                    row = {**row, name: choices[index]}
                    break
        for done in pairs_of(row):
            missing.pop(done, None)
        found.append(row)
    return found
