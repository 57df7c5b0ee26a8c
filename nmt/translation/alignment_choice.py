"""Choose the layer and head that alignments are read from: the best by gold alignments, or by agreement with the reverse
model.

Chen et al. 2020 choose the layer by the agreement of both directions, which needs no alignments by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nmt.data.text.words import words
from nmt.data.vocabulary import Ints
from nmt.errors import DataError
from nmt.scoring.aer import Links, read_gold
from nmt.translation.aligning import Pair

Gold = tuple[Links, Links]  # sure links, and possible ones, which include them
Scores = npt.NDArray[np.float64]


def read_gold_lines(lines: Sequence[str], pairs: Sequence[Pair], origin: str) -> list[Gold]:
    """Read gold alignments, one line per pair. ``origin``: their file, for messages."""
    gold_alignments = []
    for number, (line, pair) in enumerate(zip(lines, pairs, strict=True), 1):
        try:
            gold = read_gold(line)
        except DataError as error:
            raise DataError(f"{origin}:{number}: {error}") from None
        sizes = [len(words(side or "")) for side in pair]
        for source, target in sorted(gold[1]):
            if source >= sizes[0] or target >= sizes[1]:
                raise DataError(
                    f"{origin}:{number}: the link {source}-{target} is out of range: the source has {sizes[0]} words "
                    f"and the target {sizes[1]}, counted from 0"
                )
        gold_alignments.append(gold)
    return gold_alignments


def reversed_gold(gold: Gold) -> Gold:
    """Return the gold alignment of the other direction."""
    sure, possible = (frozenset((target, source) for source, target in links) for links in gold)
    return sure, possible


def error_rates(alignments: Sequence[Ints], gold: Sequence[Gold]) -> Scores:
    """Return the alignment error rate (Och and Ney 2003) of each head, from 0 to 1.

    ``alignments``: for each pair, the source word of each target word [heads, V], or -1.
    """
    hits = np.zeros(len(alignments[0]))
    links = np.zeros(len(alignments[0]))
    for aligned, (sure, possible) in zip(alignments, gold):
        weights = np.zeros((aligned.shape[1], max([aligned.max(initial=-1), *(source for source, _ in possible)]) + 2))
        for source, target in possible:
            weights[target, source] = 2.0 if (source, target) in sure else 1.0
        hits += weights[np.arange(len(weights)), aligned].sum(1)  # -1: the last column, which holds 0
        links += (aligned >= 0).sum(1)
    all_links = links + sum(len(sure) for sure, _ in gold)
    rates: Scores = 1.0 - np.divide(hits, all_links, out=np.ones(len(hits)), where=all_links > 0)
    return rates


def agreements(forward: Sequence[Ints], backward: Sequence[Ints]) -> Scores:
    """Return F1 of the links of each head of one direction and each of the other [heads, heads], from 0 to 1."""
    common = np.zeros((len(forward[0]), len(backward[0])))
    count, other = np.zeros(len(forward[0])), np.zeros(len(backward[0]))
    for ahead, back in zip(forward, backward):
        padded = np.pad(back, ((0, 0), (0, 1)), constant_values=-2)  # index -1 finds -2, which is not a word
        common += (padded[:, ahead] == np.arange(ahead.shape[1])).sum(2).T
        count += (ahead >= 0).sum(1)
        other += (back >= 0).sum(1)
    links = count[:, None] + other[None, :]
    f1: Scores = np.divide(2.0 * common, links, out=np.zeros(links.shape), where=links > 0)
    return f1
