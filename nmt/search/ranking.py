"""How finished hypotheses compete, and when there are enough of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nmt.search.length_penalty import Length, LengthPenalty


class StopRule(Enum):
    """When the search of one sentence ends."""

    first = "first"  # as soon as K hypotheses are finished (fairseq's rule), or as many as patience says
    bound = "bound"  # when no unfinished hypothesis can still beat those that would be returned
    all = "all"  # at the length limit, when none is left


@dataclass(frozen=True)
class Ranking:
    """How finished hypotheses compete, and when there are enough of them."""

    stop: StopRule
    enough: int  # finished hypotheses that end a search by ``first``
    nbest: int
    length_penalty: LengthPenalty
    lenpen: float

    def penalty(self, length: Length) -> Length:
        return self.length_penalty(length, self.lenpen)
