"""Alignment error rate (Och and Ney, 2003) of word alignments in Pharaoh's format: ``0-0 1-2``, source and target word.

References have sure links, ``0-0``, and possible links, ``1?2`` or ``1p2``. Each sure link is also possible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Any

from nmt.errors import DataError
from nmt.scoring import SacreScorer, Scorer, TextOptions, scorers
from nmt.scoring.counted import counted, only, per_cent

Links = frozenset[tuple[int, int]]

_LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")


@scorers.register("aer", make_dataclass("AerConfig", ()))
def aer(config: Any, text: TextOptions) -> Scorer:
    """1 - (found sure + found possible) / (found + sure), over all links of the text. ``tokenize`` and ``lowercase`` have
    no effect."""
    metric = counted("AER", _statistics, {"links": "pharaoh"}, summary=_summary)
    return SacreScorer(metric, higher_is_better=False, read_hypothesis=read_links, read_reference=read_gold)


def read_links(line: str) -> Links:
    """Return the links of a hypothesis; repeated links count once."""
    sure, possible = read_gold(line)
    if sure != possible:
        source, target = min(possible - sure)
        raise DataError(
            f"the link of words {source} and {target} is marked as possible; only references may have possible links"
        )
    return sure


def read_gold(line: str) -> tuple[Links, Links]:
    """Return the sure links of a reference, and its possible links, which include the sure ones."""
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise DataError(f"'{word}' is not a link; write 0-0 (in a reference, a possible link: 0?0 or 0p0)")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return frozenset(sure), frozenset(possible)


def _statistics(hypothesis: str, references: Sequence[str]) -> list[float]:
    links, (sure, possible) = read_links(hypothesis), read_gold(only(references, "aer"))
    return [float(len(selected)) for selected in (links & sure, links & possible, links, sure)]


def _summary(sums: Sequence[float]) -> tuple[float, str]:
    right_sure, right_possible, links, sure = sums
    rate = 100.0 - per_cent(right_sure + right_possible, links + sure) if links + sure else 0.0
    precision, recall = per_cent(right_possible, links), per_cent(right_sure, sure)
    return rate, f"(precision = {precision:.2f} recall = {recall:.2f} found = {links:.0f} sure = {sure:.0f})"
