"""Which pairs of the training split are kept; every dropped one is counted under its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from nmt.config.sections import FilterConfig
from nmt.data.encoding import EncodedPairs

Codes = npt.NDArray[np.int8]


class Reason(IntEnum):
    """Why a pair was dropped, in the order in which the rules are asked; a pair has one reason."""

    kept = 0, "kept"
    invalid = 1, "bytes that are not text"
    empty_source = 2, "empty source"
    empty_target = 3, "empty target"
    too_short = 4, "shorter than filters.min_length"
    too_long = 5, "longer than filters.max_length"
    ratio = 6, "lengths differ more than filters.max_ratio"
    duplicate = 7, "pair seen before"

    text: str

    def __new__(cls, code: int, text: str) -> Reason:
        reason = int.__new__(cls, code)
        reason._value_ = code
        reason.text = text
        return reason


@dataclass
class PairFilter:
    """The rules, and the memory of the pairs seen so far if duplicates are dropped."""

    config: FilterConfig
    _seen: set[int] = field(default_factory=set)

    def judge(self, pairs: EncodedPairs) -> Codes:
        """A ``Reason`` for each pair. Lengths are in pieces, without eos."""
        source = pairs.source.lengths - 1
        target = source if pairs.target is None else pairs.target.lengths - 1
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        none = np.zeros(len(source), dtype=bool)
        rules = {
            Reason.invalid: pairs.invalid,
            Reason.empty_source: pairs.blank_source,
            Reason.empty_target: none if pairs.target is None else pairs.blank_target,
            Reason.too_short: shorter < self.config.min_length,
            Reason.too_long: longer > self.config.max_length,
            Reason.ratio: none if self.config.max_ratio is None else longer > self.config.max_ratio * shorter,
        }
        codes = np.select(list(rules.values()), list(rules), default=Reason.kept).astype(np.int8)
        if self.config.drop_duplicates:
            self._mark_duplicates(codes, pairs)
        return codes

    def _mark_duplicates(self, codes: Codes, pairs: EncodedPairs) -> None:
        """Only pairs that are kept count as seen."""
        for position in np.flatnonzero(codes == Reason.kept):
            key = int(pairs.pair_keys[position])
            if key in self._seen:
                codes[position] = Reason.duplicate
            self._seen.add(key)
