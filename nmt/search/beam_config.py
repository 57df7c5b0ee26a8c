"""The options of beam search."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.search import searches
from nmt.search.length_penalty import LengthPenalty
from nmt.search.ranking import Ranking, StopRule
from nmt.search.rules_config import RuleConfig

_LARGEST_LENPEN = 20.0  # with which scores of long translations are still numbers
_MANY = 10**9  # finished hypotheses: nobody waits for more


@searches.declare("beam")
@dataclass
class BeamConfig(RuleConfig):
    """Beam search: the K best unfinished hypotheses are extended side by side."""

    beam_size: int = option(5, help="hypotheses kept per sentence", flag="--beam")
    length_penalty: LengthPenalty = option(
        LengthPenalty.gnmt,
        help="log-probabilities are divided by: gnmt ((5+length)/6)^lenpen, power length^lenpen (fairseq's)",
        flag="--length-penalty",
    )
    lenpen: float = option(
        0.6, help="exponent of the length penalty; 0: none, higher favours longer translations", flag="--lenpen"
    )
    coverage_penalty: float = option(
        0.0,
        help="weight of log(attention that each source piece got, at most 1), added to the score of a finished "
        "translation; needs a model with attention",
        flag="--coverage-penalty",
    )
    stop: StopRule = option(
        StopRule.first,
        help="first: when enough hypotheses are finished (see --beam-patience); bound: when no other can win any more; "
        "all: when all have reached their end or the length limit",
        flag="--stop",
    )
    patience: float = option(
        1.0, help="finished hypotheses that --stop first waits for, as a multiple of --beam", flag="--beam-patience"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("search", beam_size=self.beam_size, patience=self.patience)
        require_not_negative("search", lenpen=self.lenpen, coverage_penalty=self.coverage_penalty)
        if self.lenpen > _LARGEST_LENPEN:
            raise UsageError(
                f"search.lenpen={self.lenpen:g} is more than {_LARGEST_LENPEN:g} (--lenpen); 0.6 to 1 are usual"
            )

    @property
    def finds_at_most(self) -> int:
        return self.beam_size

    def require_slots(self, nbest: int) -> None:
        """Refuse to look for more translations than there are slots."""
        if nbest > self.beam_size:
            raise UsageError(
                f"nbest={nbest} is more than the beam of {self.beam_size} finds; "
                f"lower --nbest or raise search.beam_size (--beam {nbest})"
            )

    def ranking(self, width: int, nbest: int) -> Ranking:
        """Of hypotheses in so many slots."""
        enough = max(nbest, math.floor(min(width * self.patience, _MANY) + 0.5))
        return Ranking(self.stop, enough, nbest, self.length_penalty, self.lenpen)
